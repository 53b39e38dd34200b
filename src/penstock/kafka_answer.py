"""What brokers answer to a request of an AdminClient."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any


def answered(future: Future[Any], wait: float | None = None) -> Any:
    """What came of the request, or its error, as a new one.

    The library's own thread lets go of a future some time after everybody else. An error that is raised from there remembers the
    frames it went through, and with them the client: the last one to hold it would be that thread, and the library aborts a
    process that lets one of its threads destroy its own client.
    """
    if error := future.exception(wait):
        raise type(error)(*error.args)
    return future.result()

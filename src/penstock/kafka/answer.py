"""The answers of brokers to requests of an AdminClient."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any


def answered(future: Future[Any], wait: float | None = None) -> Any:
    """The result of a request. Raises a copy of its error.

    The original error refers to the client by its frames, and the thread of the library is the last to release it. The library
    aborts a process in which its own thread destroys the client.
    """
    if error := future.exception(wait):
        raise type(error)(*error.args)
    return future.result()

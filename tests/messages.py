"""The changes of messages, as an outbox gives them."""

from __future__ import annotations

from penstock.change import Change, Op
from penstock.message import Message


def to_change(message: Message, position: int, at: int = 0) -> Change:
    """The change of a message."""
    op = Op.DELETE if message.value is None else Op.INSERT
    return Change(position, op, message.topic, message.key, None, message.value, at, headers=tuple(message.headers))

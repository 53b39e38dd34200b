"""Dead letters of all kinds of state: a kind implements `Storage` and the abstract methods of `StoreLetters`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol

from penstock.change import CHANGES, Change, Op, values
from penstock.errors import TermHeld
from penstock.letter import DeadLetter, in_order
from penstock.message import document, headers_of, headers_text


class Storage(Protocol):
    """The letters of one pipeline during one step, which is atomic and excludes other steps."""

    def add(self, letter: DeadLetter) -> None:
        """Keep a letter under the next number, unless there is one of the same change."""

    def is_held(self, letter: DeadLetter) -> bool:
        """Whether there is a letter of the same change, or an earlier one (`Hold.is_before`) of its rows holds."""

    def overtake(self, letter: DeadLetter) -> None:
        """Mark the earlier letters of its rows as overtaken by this one, unless they are overtaken already."""

    def give_back(self, letter: DeadLetter) -> None:
        """Remove the marks of this letter from the earlier letters of its rows."""

    def hold(self, number: int | None, *, force: bool) -> bool:
        """Mark a letter as one for which later changes wait, unless it is overtaken and `force` is not set."""

    def delete(self, number: int | None) -> bool:
        """Delete a letter; False if there is none."""

    def count(self, *, dropped: int = 0, passed: int = 0, redriven: int = 0) -> None:
        """Add to the totals."""


def fields_of(change: Change) -> dict[str, Any]:
    """The stored fields of a change: a message as its document, headers as JSON text."""
    kept = document(change)
    stored = dict(zip(CHANGES.names, values(kept), strict=True))
    return {**stored, "op": str(kept.op), "headers": headers_text(kept.headers) if kept.headers else None}


def change_of(fields: Mapping[str, Any]) -> Change:
    """The change of these fields; earlier versions stored no headers."""
    return Change(**{**fields, "op": Op(fields["op"]), "headers": headers_of(fields.get("headers"))})


def _follow(storage: Storage, letter: DeadLetter) -> bool:
    """Whether a letter is parked after an earlier letter of its rows; otherwise it overtakes those."""
    if is_held := storage.is_held(letter):
        storage.add(letter)
    else:
        storage.overtake(letter)
    return is_held


def _remove(storage: Storage, number: int, *, redriven: bool) -> bool:
    """Delete a letter, and count the reason."""
    if is_there := storage.delete(number):
        storage.count(dropped=int(not redriven), redriven=int(redriven))
    return is_there


def take(step: str, storage: Storage, letters: Sequence[DeadLetter]) -> list[Any]:
    """Take a step of a claim with each of these letters; returns the result for each."""
    steps: dict[str, Callable[[DeadLetter], Any]]
    steps = {"park": storage.add, "follow": partial(_follow, storage), "give_back": storage.give_back}
    return [steps[step](letter) for letter in letters]


def alter(step: str, storage: Storage, number: int | None, **asked: bool) -> bool:
    """Take a step of an operator with the letter of this number; False if there is none."""
    steps: dict[str, Callable[..., bool]] = {"hold": storage.hold, "remove": partial(_remove, storage)}
    return steps[step](number, **asked)


class StoreLetters(ABC):
    """`DeadLetters` for coordinators."""

    @abstractmethod
    def _parked(self, pipeline: str) -> Iterable[DeadLetter]:
        """The letters of a pipeline, in any order."""

    @abstractmethod
    def _alter(self, step: str, number: int | None, **asked: bool) -> bool:
        """Take a step of an operator; False if there is no such letter."""

    @abstractmethod
    def _sole(self, pipeline: str) -> AbstractContextManager[bool]:
        """Whether this process alone may send or remove letters until the block ends."""

    def letters(self, pipeline: str) -> Sequence[DeadLetter]:
        """The dead letters of a pipeline; those of one key in order."""
        return in_order(self._parked(pipeline))

    @contextmanager
    def redriving(self, pipeline: str) -> Iterator[None]:
        """The exclusive right to send letters again or to remove them. Raises TermHeld."""
        with self._sole(pipeline) as is_sole:
            if not is_sole:
                said = f"another process sends or drops dead letters of {pipeline}"
                raise TermHeld(said, "wait until it has ended, then try again")
            yield

    def hold(self, letter: DeadLetter, *, force: bool = False) -> bool:
        """Make later changes of its key wait for it. False if it is gone, or was overtaken and `force` is not set."""
        return self._alter("hold", letter.number, force=force)

    def remove(self, letter: DeadLetter, *, redriven: bool) -> bool:
        """Delete a letter that was delivered, or that an operator dropped. False if it is gone already."""
        return self._alter("remove", letter.number, redriven=redriven)

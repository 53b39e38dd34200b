"""The contract of a store of dead letters. `coordinators/letters.py` implements it over the storage of each kind of state."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.letter import DeadLetter
from penstock.poison.parked_keys import Hold
from penstock.rows import Row


class Parking(Protocol):
    """The operations of the holder of a lane on the letters of its pipeline.

    - Incarnation, lane, position and ordinal identify a letter: parked again, it stays unchanged.
    - When a call returns, its letters survive the end of the process, and are as durable as every watermark recorded later. After
      `secure`, they are as durable as anything the sink makes durable later.
    - All but `secure` raise TermLost and change nothing once the claim is no longer current. Any thread may call.
    """

    def holds(self, rows: Collection[Row] | None = None) -> Sequence[Hold]:
        """The letters of all lanes of the pipeline, or those that share one of these rows."""

    def park(self, letters: Sequence[DeadLetter]) -> None:
        """Store letters."""

    def follow(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """For each letter: whether it is parked, earlier or by this call because an earlier letter holds one of its rows.

        The same step marks as overtaken the earlier letters that share rows with the others.
        """

    def give_back(self, letters: Sequence[DeadLetter]) -> None:
        """Undo the overtaking by these letters, which were sent and did not arrive."""

    def secure(self) -> None:
        """Make all parked letters survive a loss of power."""


class DeadLetters(Protocol):
    """The operations of an operator on the dead letters of a store.

    - Letters belong to a pipeline. A change is parked after an earlier letter only if that letter exists in the same step.
    - Only `remove` and `forget` delete letters: the process that removes the last letter of a key has read all that waited for it.
    """

    def letters(self, pipeline: str) -> Sequence[DeadLetter]:
        """The dead letters; those of one key in the order of sending."""

    def redriving(self, pipeline: str) -> AbstractContextManager[None]:
        """The exclusive right to send or remove letters, until the block or the process ends. Raises TermHeld.

        The leader of the pipeline continues in the meantime.
        """

    def hold(self, letter: DeadLetter, *, force: bool = False) -> bool:
        """Make later changes of its key wait for a letter. False if it was removed, or was overtaken and `force` is not set."""

    def remove(self, letter: DeadLetter, *, redriven: bool) -> bool:
        """Delete a letter that was delivered, or that an operator dropped. False if it does not exist."""

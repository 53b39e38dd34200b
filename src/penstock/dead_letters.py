"""The contract of a store of dead letters. `coordinators/letters.py` implements it over the storage of each kind of state."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.letter import DeadLetter
from penstock.poison.parked_keys import Hold
from penstock.rows import Row


class Parking(Protocol):
    """The letters of a pipeline, as the holder of one lane changes them.

    - A letter is known by incarnation, lane, position and ordinal: parked again, it stays as it was.
    - Letters outlive the process when a call returns, and no watermark that is recorded later outlives them; once `secure` has
      returned, nothing does that the sink makes durable elsewhere.
    - All but `secure` raise TermLost, and change nothing, once the claim is no longer the current one. Any thread may call.
    """

    def holds(self, rows: Collection[Row] | None = None) -> Sequence[Hold]:
        """The letters of the pipeline, on every lane; or those that share one of these rows."""

    def park(self, letters: Sequence[DeadLetter]) -> None:
        """Keep these."""

    def follow(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Whether each of these is parked: it was parked before, or is parked now because an earlier letter holds one of its rows.

        In the same step, the earlier letters of rows of the others are marked as overtaken.
        """

    def give_back(self, letters: Sequence[DeadLetter]) -> None:
        """These were sent past earlier letters, and did not arrive: letters that they overtook first are no longer overtaken."""

    def secure(self) -> None:
        """Make all parked letters outlive a loss of power, too."""


class DeadLetters(Protocol):
    """The dead letters of all pipelines of a store, as operators list, send and drop them.

    - Letters belong to a pipeline. A change is parked after an earlier letter only if that letter is there in the same step.
    - Only `remove` and `forget` delete letters: the process that removes the last letter of a key has seen all that waited.
    """

    def letters(self, pipeline: str) -> Sequence[DeadLetter]:
        """The dead letters, those of one key in the order in which they must be sent."""

    def redriving(self, pipeline: str) -> AbstractContextManager[None]:
        """The sole right to send letters again, or to remove them, until the block ends or the process dies. Raises TermHeld.

        The leader of the pipeline goes on meanwhile.
        """

    def hold(self, letter: DeadLetter, *, force: bool = False) -> bool:
        """From now on later changes of its key wait for it. False if it is gone, or was overtaken and `force` is not set."""

    def remove(self, letter: DeadLetter, *, redriven: bool) -> bool:
        """Delete a letter that was delivered, or that an operator dropped. False if it is gone already."""

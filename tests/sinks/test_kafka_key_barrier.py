"""One record of a key at a time: who may go, who waits, who goes back; against a model of a table, a reader and a pipe."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from penstock.change import Change, Op
from penstock.sinks.kafka.key_barrier import KeyBarrier
from penstock.sinks.kafka.shelf import Entry

KEYS = 2


class World:
    """A table whose rows are marked in the order of ids into a pipe; what is sent, and what became of it."""

    def __init__(self, keys: list[int]) -> None:
        self.key = dict(enumerate(keys, 1))
        self.unmarked, self.left, self.pipe = set(self.key), set(self.key), deque[int]()
        self.barrier, self.under_way, self.sent = KeyBarrier(lambda change: change.position), list[Entry](), list[int]()

    def mark(self, most: int) -> None:
        for row in sorted(self.unmarked)[:most]:
            self.unmarked.discard(row)
            self.pipe.append(row)

    def take(self, most: int) -> None:
        for row in [self.pipe.popleft() for _ in range(min(most, len(self.pipe)))]:
            entry = Entry(row, Change(row, Op.INSERT, "t", str(self.key[row])), None)
            if not self.barrier.put(entry):
                self.unmarked.add(row)

    def send(self, most: int) -> None:
        for entry in self.barrier.due(most):
            self.under_way.append(entry)
            self.sent.append(entry.number)
            assert len({self.key[one.number] for one in self.under_way}) == len(self.under_way), "two of a key"

    def answer(self, which: int, is_good: bool) -> None:
        if self.under_way:
            entry = self.under_way.pop(which % len(self.under_way))
            if is_good:
                self.barrier.settle(entry)
                self.left.discard(entry.number)
            else:
                self.unmarked.update(one.number for one in self.barrier.give_back(entry))

    def run(self, deeds: list[tuple[str, int, bool]]) -> None:
        for deed, number, is_good in deeds:
            match deed:
                case "mark":
                    self.mark(number)
                case "take":
                    self.take(number)
                case "send":
                    self.send(number)
                case _:
                    self.answer(number, is_good)
        while self.left:
            self.mark(5)
            self.take(5)
            self.send(5)
            self.answer(0, True)


DEEDS = st.tuples(st.sampled_from(["mark", "take", "send", "answer"]), st.integers(1, 6), st.booleans())


@settings(max_examples=examples(300))
@given(
    st.lists(st.integers(1, KEYS), min_size=1, max_size=12),
    st.lists(DEEDS, min_size=10, max_size=80),
)
def test_whatever_fails_and_whenever_no_record_of_a_key_comes_after_a_later_one(
    keys: list[int], deeds: list[tuple[str, int, bool]]
) -> None:
    world = World(keys)
    world.run(deeds)
    for key in set(keys):
        came = [row for row in world.sent if world.key[row] == key]
        assert came == sorted(came), "R0 R1 R1 R2 may be, R0 R1 R0 may not"
        assert set(came) == {row for row, its in world.key.items() if its == key}
    assert world.barrier.returned == 0

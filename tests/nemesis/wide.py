"""The nemesis over everything a pipeline can do, beside a second pipeline on the same log; and what is to be said of it then."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import closing, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from deadline import PATIENCE, until
from fix_rig import Rig
from nemesis import Nemesis, Step
from penstock.sources.sqlite.rescan import repair
from penstock.sources.sqlite.suspend import resume, suspend
from penstock.testing import oracle
from penstock.testing.receiver import ReceiverProcess
from program import Program
from shop import KEYS, Keeper

RULES = """
import os

ORDER = os.path.join(os.path.dirname(__file__), "die")


def split(change):
    if os.path.exists(ORDER):
        os.unlink(ORDER)
        os._exit(7)
    return [change, change] if change.table == "stock" and change.op == "insert" else change
"""
TRANSFORM = {"where": "op <> 'delete' or table is not null", "function": "rules:split"}
MANY = 1000  # of ordinals: a row of a snapshot has a greater one, what a function makes has smaller ones
ROOM = 30
"""A rewind needs so many changes to go back over."""
LARGE = 4_000_000
"""Bytes of a large value."""


class Rewind(NamedTuple):
    """A person set the watermark back; later epochs deliver again."""

    epoch: int
    was: int
    to: int


@contextmanager
def wide_rig(folder: Path) -> Iterator[Rig]:
    """A pipeline with a snapshot, a transform and parallel requests, over a shop that has rows already."""
    with Rig(folder, start="snapshot", retain={"history": "20s"}, transform=TRANSFORM, parallel=4, timeout="5s") as rig:
        (folder / "rules.py").write_text(RULES)
        keeper = Keeper(rig.shop, seed=1)
        for _ in range(300):
            keeper.act()
        rig.shop.is_migrated = True
        yield rig


class WideNemesis(Nemesis):
    """Also changes the schema, rewinds, runs batches beside the others, and has a second pipeline that is run now and then."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rewinds, self.forgotten, self._floor = list[Rewind](), [0], 0
        self.second = _Second(rig)
        super().__init__(rig, seed)

    def _torment(self, steps: Iterable[Step]) -> None:
        """Begin behind the snapshot: changes before it were never delivered, so nobody goes back to them."""
        self._until_progress()
        self._floor = self._rig.shop.head
        super()._torment(steps)

    def verdicts(self) -> dict[str, list[str]]:
        """What each oracle says, once everything has ended."""
        seen = self._rig.deliveries()
        return {
            "order": oracle.order(seen),
            "rebuilt": oracle.rebuilt(seen, self._rig.shop.tables()),
            "rewound": rewound(seen, self.rewinds),
            "second pipeline": self.second.breaches(seen, self.forgotten),
        }

    def end(self) -> list[int]:
        """Stop both, and let the second pipeline come to its end."""
        codes = super().end()
        self._run_the_second_pipeline(whole=True)
        return codes

    def _run_a_batch(self) -> None:
        batch = self._rig.start("--available-now")
        assert batch.exit_code() == 0, batch.tail()

    def _run_a_batch_of_both(self) -> None:
        self._run_the_second_pipeline(False, self._rig.file)

    def _run_the_second_pipeline(self, whole: bool = False, *others: Path) -> None:
        """It is gone between its runs, and finds everything it needs when it comes back, also after a kill."""
        batch = self.second.start(*others)
        if not whole and self._chance.random() < 0.3:
            self._dwell(8)
            self._kill("whole tree", batch.tree())
        assert batch.exit_code() in (0, -signal.SIGKILL), batch.tail()

    def _forget_the_second_pipeline(self) -> None:
        if self.second.is_known():
            penstock("forget", self.second.file, "--yes")
            self.forgotten.append(self._rig.state.pipeline_state("second").epoch)

    def _let_the_shop_be_still(self) -> None:
        """Then the log is pruned, up to where both pipelines are."""
        with self._rig.shop.still():
            self._dwell(4)

    def _rewind_to_a_position(self) -> None:
        self._rewind("seq")

    def _rewind_to_a_time(self) -> None:
        self._rewind("strftime('%Y-%m-%dT%H:%M:%fZ', at)")

    def _rewind(self, place: str) -> None:
        """Back to somewhere in the middle of what the log still has."""
        self._until_at_work()
        until(lambda: len(self._log(place)) > ROOM, what=lambda: f"{len(self._log(place))} changes to go back to")
        for program in self._team:
            assert program.terminate() == 0, program.tail()
        was, found = self._rig.position, self._log(place)
        if len(found) > ROOM:
            penstock("rewind", self._rig.file, "--to", str(self._chance.choice(found[ROOM // 3 : -ROOM // 3])), "--yes")
            self.rewinds.append(Rewind(self._rig.pipeline_state().epoch, was, self._rig.position))
        self._team = [self._recruit(), self._recruit()]

    def _log(self, place: str) -> list[Any]:
        """What the log has behind the floor and up to the watermark, each change as this expression."""
        sql = f"select {place} from _penstock_log where seq between ? and ? order by seq"
        with self._schema() as connection:
            return [to for (to,) in connection.execute(sql, [self._floor, self._rig.position])]

    def _add_a_column(self) -> None:
        table = self._chance.choice(list(KEYS))
        with self._schema() as connection:
            connection.execute(f"alter table {table} add column extra_{self._chance.randrange(10**6)} default 7")

    def _rename_a_column(self) -> None:
        for table, column in self._extras():
            with self._schema() as connection:
                connection.execute(f"alter table {table} rename column {column} to extra_{self._chance.randrange(10**6)}")

    def _drop_a_column(self) -> None:
        """As a migration does that was told to suspend capture."""
        for table, column in self._extras():
            suspend(str(self._rig.shop.path), table)
            with self._schema() as connection:
                connection.execute(f"alter table {table} drop column {column}")
            resume(str(self._rig.shop.path), table)

    def _rebuild_a_table(self) -> None:
        """New, copy, drop, rename: the triggers go with the table, and every row is told again."""
        suspend(str(self._rig.shop.path), "stock")
        with self._schema() as connection:
            connection.executescript(
                "begin immediate; create table fresh(sku text primary key, on_hand integer not null check(on_hand >= 0));"
                "insert into fresh select sku, on_hand from stock; drop table stock; alter table fresh rename to stock; commit"
            )
        resume(str(self._rig.shop.path), "stock")

    def _rebuild_a_table_by_recipe(self) -> None:
        """SQLite's procedure for ALTER TABLE: the triggers are created again as they were, and the rows differ."""
        with self._schema() as connection:
            connection.execute("begin immediate")
            saved = [
                sql for (sql,) in connection.execute("select sql from sqlite_master where type = 'trigger' and tbl_name = 'stock'")
            ]
            connection.execute("create table fresh(sku text primary key, on_hand integer not null check(on_hand >= 0))")
            connection.execute("insert into fresh select sku, on_hand + 1 from stock")
            connection.execute("drop table stock")
            connection.execute("alter table fresh rename to stock")
            for sql in saved:
                connection.execute(sql)
            connection.execute("commit")
        self._dwell(3)
        repair(str(self._rig.shop.path))

    def _truncate_the_state(self) -> None:
        """Every process notices and halts; then the file is put back as it was."""
        state = Path(self._rig.state.path)
        with closing(sqlite3.connect(state, timeout=PATIENCE, isolation_level=None)) as connection:
            until(lambda: connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0] == 0)
            connection.execute("begin immediate")
            whole = state.read_bytes()
            os.truncate(state, 100)
        until(lambda: not any(program.is_running() for program in self._team), what=self.tails)
        for rest in ("-wal", "-shm"):
            state.with_name(state.name + rest).unlink(missing_ok=True)
        state.write_bytes(whole)

    def _end_a_worker_by_a_function(self) -> None:
        order = self._rig.folder / "die"
        order.touch()
        self._change()
        until(self._keeping_two(lambda: not order.exists()), what=self.tails)
        self.kills["worker, by a function"] += 1

    def _sell_something_large(self) -> None:
        with self._rig.shop.transaction() as work:
            work.put("orders", id=self._chance.randrange(10**9), customer=1, total=1.0, note=self._chance.randbytes(LARGE))

    def _is_excused(self, program: Program) -> bool:
        said = program.said()
        return super()._is_excused(program) or "capture.broken" in said or "state.invalid" in said

    @contextmanager
    def _schema(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._rig.shop.path, timeout=PATIENCE, isolation_level=None)) as connection:
            yield connection

    def _extras(self) -> list[tuple[str, str]]:
        """One of the columns that were added; if there is none, one is added."""
        sql = "select m.name, c.name from sqlite_master m, pragma_table_info(m.name) c where c.name glob 'extra_*'"
        with self._schema() as connection:
            found = [one for one in connection.execute(sql) if one[0] in KEYS]
        if found:
            return [self._chance.choice(found)]
        self._add_a_column()
        return self._extras()

    MIGRATIONS = (_add_a_column, _rename_a_column, _drop_a_column, _rebuild_a_table, _rebuild_a_table_by_recipe)
    HOSTILE = (_end_a_worker_by_a_function, _sell_something_large, _truncate_the_state)
    REWINDS = (_rewind_to_a_position, _rewind_to_a_time)
    DECKS = (
        (Nemesis.DEAR, 1),
        (Nemesis.CHEAP, 4),
        (MIGRATIONS, 2),
        (REWINDS, 1),
        ((_run_a_batch_of_both, _forget_the_second_pipeline), 1),
        ((_let_the_shop_be_still,), 1),
    )
    STEPS = (
        *Nemesis.STEPS,
        *(_run_a_batch, _add_a_column, _let_the_shop_be_still) * 2,
        *MIGRATIONS[1:],
        *HOSTILE,
        *REWINDS,
        _run_the_second_pipeline,
        _forget_the_second_pipeline,
    )


class _Second:
    """Another pipeline on the same log and in the same state file, with a receiver of its own."""

    def __init__(self, rig: Rig) -> None:
        self._rig, self.file = rig, rig.folder / "second.yaml"
        self.receiver = ReceiverProcess(rig.folder / "second.requests").start()
        rig.leaving.append(self.receiver.stop)
        content = yaml.safe_load(rig.file.read_text())
        content |= {"name": "second", "source": {"type": "sqlite", "database": "shop.db"}}
        content["sink"] |= {"url": self.receiver.url, "parallel": 1}
        del content["transform"]
        self.file.write_text(yaml.safe_dump(content))

    def start(self, *others: Path) -> Program:
        """Run it up to what is there now."""
        program = Program(self._rig.folder, self.file, *others, "--available-now")
        self._rig.programs.append(program)
        return program

    def is_known(self) -> bool:
        """Whether it has a watermark to be forgotten."""
        return bool(self._rig.state.pipeline_state("second").watermarks)

    def breaches(self, by_first: Sequence[oracle.Delivery], forgotten: Sequence[int]) -> list[str]:
        """Each of its lives is an unbroken run of the log: it lacks nothing that the first pipeline has delivered from there."""
        made = {one.position for one in by_first if is_of_log(one)}
        return [breach for life in cut(oracle.deliveries(self.receiver.requests), forgotten) for breach in broken(life, made)]


def penstock(*arguments: str | Path) -> None:
    """A command that does what it is asked."""
    command = [sys.executable, "-m", "penstock", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"


def broken(life: Sequence[oracle.Delivery], made: Set[int]) -> list[str]:
    """Where a run of the log is not whole, not in order, or repeats itself otherwise than it may."""
    positions = {one.position for one in life}
    lacking = sorted(one for one in made - positions if min(positions) < one < max(positions))
    found = [f"the second pipeline lacks change {one}" for one in lacking]
    return found + oracle.order(life) + oracle.chain(life) + oracle.repeats(life)


def cut(seen: Sequence[oracle.Delivery], epochs: Sequence[int]) -> list[list[oracle.Delivery]]:
    """What was delivered behind each of these epochs, and before the next of them; empty parts are left out."""
    taken = oracle.current(seen)
    ends = [*epochs[1:], sys.maxsize]
    parts = [[one for one in taken if begin < one.epoch <= end] for begin, end in zip(epochs, ends, strict=True)]
    return [part for part in parts if part]


def rewound(seen: Sequence[oracle.Delivery], rewinds: Sequence[Rewind]) -> list[str]:
    """Behind a rewind everything comes again that had come, in order and in the same bytes; only `previous` may be unknown."""
    came = [one for one in oracle.current(seen) if is_of_log(one)]
    first = {one.place: one for one in oracle.firsts(came)}
    found = [f"change {one.name} came again as {one.text}" for one in came if told(one) != told(first[one.place])]
    for rewind, following in zip_longest(rewinds, rewinds[1:]):
        upto = min(rewind.was, following.was) if following else rewind.was
        run = [one for one in came if rewind.epoch < one.epoch <= (following.epoch if following else sys.maxsize)]
        before = {one.place for one in came if one.epoch < rewind.epoch and rewind.to < one.position <= upto}
        lacking = sorted(before - {one.place for one in run})
        found += [f"change {oracle.named(one)} did not come again after {rewind}" for one in lacking] + oracle.order(run)
    return found


def told(delivery: oracle.Delivery) -> dict[str, Any]:
    """A change without what a rewind makes unknown."""
    return {**delivery.change, "previous": None}


def is_of_log(delivery: oracle.Delivery) -> bool:
    """Whether it has a position of its own: rows of a snapshot share theirs, and are read anew each time."""
    return delivery.place[1] < MANY

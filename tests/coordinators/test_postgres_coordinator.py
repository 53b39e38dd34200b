"""What is special about the coordinator in Postgres."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deadline import PATIENCE, until
from penstock.change import Change, Lane, Op
from penstock.config import parse
from penstock.coordinator import PipelineState, Tally, Term
from penstock.coordinators.postgres.candidate import PostgresCandidate
from penstock.coordinators.postgres.coordinator import PostgresCoordinator
from penstock.coordinators.postgres.locks import number_of
from penstock.coordinators.postgres.schema import NAME, VERSION
from penstock.coordinators.postgres.store import StateStore, spelled
from penstock.coordinators.row_coordinator import PLACE
from penstock.cursor import Cursor, Watermark
from penstock.errors import ConfigInvalid, PenstockError, StateInvalid, StateUnavailable, TermLost
from penstock.letter import DeadLetter
from servers.postgres import PostgresServer
from servers.proxy import Proxy

LANE = Lane("main")


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def coordinator(empty_state: str, clock: Clock) -> PostgresCoordinator:
    return PostgresCoordinator(patient(empty_state), ttl=10.0, clock=clock)


@pytest.fixture
def leader(coordinator: PostgresCoordinator) -> Iterator[PostgresCandidate]:
    with closing(coordinator.candidate("p", "leader")) as made:
        yield made


@pytest.fixture
def rival(coordinator: PostgresCoordinator) -> Iterator[PostgresCandidate]:
    with closing(coordinator.candidate("p", "rival")) as made:
        yield made


@pytest.fixture
def sql(empty_state: str, postgres_server: PostgresServer) -> Callable[[str], list[Any]]:
    return lambda text: postgres_server.execute(text, empty_state)


def mark(position: int) -> Watermark:
    return Watermark(Cursor(f"c{position}"), position, position)


def taken(coordinator: PostgresCoordinator, leader: PostgresCandidate) -> Term:
    term = leader.campaign()
    assert term
    coordinator.place(term, {LANE: mark(0)})
    return term


def patient(dsn: str) -> str:
    """Answers are waited for as long as any event."""
    return f"{dsn}?connect_timeout={PATIENCE:.0f}"


def through(dsn: str, proxy: Proxy, clock: Callable[[], float] = time.monotonic) -> PostgresCoordinator:
    head, _, name = dsn.rpartition("/")
    return PostgresCoordinator(patient(f"{head.rpartition(':')[0]}:{proxy.port}/{name}"), ttl=10.0, clock=clock)


def end_sessions(sql: Callable[[str], list[Any]]) -> None:
    """As a server does that is stopped."""
    ours = "application_name = 'penstock' and datname = current_database()"  # other workers share the server
    sql(f"select pg_terminate_backend(pid, 900000) from pg_stat_activity where {ours}")


def has_waiter(sql: Callable[[str], list[Any]], blocker: psycopg.Connection[Any]) -> bool:
    """Whether one session waits for a lock of this one."""
    waits = f"{blocker.info.backend_pid} = any(pg_blocking_pids(pid)) and datname = current_database()"
    return sql(f"select count(*) from pg_stat_activity where {waits}") == [(1,)]


# Its tables.


def test_asking_makes_no_tables_and_standing_for_a_pipeline_does(postgres: str, postgres_server: PostgresServer) -> None:
    coordinator = PostgresCoordinator(patient(postgres))
    assert coordinator.pipeline_state("p") == PipelineState()
    assert coordinator.watermark("p", LANE) is None
    assert coordinator.letters("p") == []
    coordinator.examine()
    assert postgres_server.execute(f"select to_regnamespace('{NAME}')", postgres) == [(None,)]
    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(coordinator.candidate, "p", str(number)) for number in range(8)]
        for one in made:
            one.result().close()
    assert postgres_server.execute(f"select version from {NAME}.about", postgres) == [(VERSION,)]
    assert coordinator.pipeline_state("p") == PipelineState()


def test_a_schema_that_is_not_ours_or_of_a_later_version_is_refused_and_left_alone(
    postgres: str, postgres_server: PostgresServer
) -> None:
    coordinator = PostgresCoordinator(patient(postgres))
    postgres_server.execute(f"create schema {NAME} create table {NAME}.orders (id int)", postgres)
    for deed in (lambda: coordinator.candidate("p", "a"), lambda: coordinator.pipeline_state("p")):
        with pytest.raises(StateInvalid, match="was not made by Penstock"):
            deed()
    postgres_server.execute(f"drop table {NAME}.orders", postgres)
    coordinator.candidate("p", "a").close()
    postgres_server.execute(f"update {NAME}.about set version = {VERSION + 1}", postgres)
    with pytest.raises(StateInvalid, match=f"version {VERSION + 1}"):
        PostgresCoordinator(patient(postgres)).candidate("p", "a")


def test_a_schema_of_the_first_version_is_upgraded_by_its_owner_alone_and_keeps_what_it_knows(
    coordinator: PostgresCoordinator, leader: PostgresCandidate, empty_state: str, postgres_server: PostgresServer
) -> None:
    term = taken(coordinator, leader)
    role = f"r{os.getpid()}-guest"
    postgres_server.execute(f"create role \"{role}\" login password 'x'", empty_state)
    try:
        postgres_server.execute(f'grant usage, create on schema {NAME} to "{role}"', empty_state)
        postgres_server.execute(f'grant select, insert, update, delete on all tables in schema {NAME} to "{role}"', empty_state)
        for column in (
            "watermarks drop column trouble",
            "dead_letters drop column overtaken_by",
            "terms drop column ttl",
            "about drop column identity",
            "dead_letters drop column facts, drop column headers, drop column schema_version",
            "dead_letters add column old_row_id bigint, add column new_row_id bigint",
        ):
            postgres_server.execute(f"alter table {NAME}.{column}", empty_state)
        postgres_server.execute(f"update {NAME}.about set version = 1", empty_state)
        guest = PostgresCoordinator(patient(postgres_server.dsn_of(empty_state.rpartition("/")[2], role, "x")))
        with pytest.raises(StateInvalid, match="may not change its tables") as caught:
            guest.pipeline_state("p")
        assert "run penstock status FILE once as the owner of the tables" in caught.value.remedy
        fresh = PostgresCoordinator(f"{patient(empty_state)}&application_name=fresh")
        with ThreadPoolExecutor(8) as pool:
            found = {one.epoch for one in pool.map(fresh.pipeline_state, ["p"] * 8)}
        assert found == {term.epoch}
        assert guest.watermark("p", LANE) == mark(0)
        assert guest.identity() == fresh.identity()
    finally:
        postgres_server.execute(f'drop owned by "{role}"', empty_state)
        postgres_server.execute(f'drop role "{role}"', empty_state)


def test_who_lacks_rights_is_told_what_to_grant_and_needs_no_more(postgres: str, postgres_server: PostgresServer) -> None:
    role, name = f"r{os.getpid()}-x", postgres.rpartition("/")[2]
    postgres_server.execute(f"create role \"{role}\" login password 'x'", postgres)
    coordinator = PostgresCoordinator(patient(postgres_server.dsn_of(name, role, "x")))

    def refused(*deeds: Callable[[], Any]) -> str:
        remedies = set()
        for deed in deeds:
            with pytest.raises(StateInvalid) as caught:
                deed()
            remedies.add(caught.value.remedy)
        [remedy] = remedies
        return remedy.partition(": ")[2]

    def stand() -> None:
        with closing(coordinator.candidate("p", "a")) as one:
            coordinator.place(one.campaign() or Term("p", "a", 0), {LANE: mark(1)})

    try:
        grant = refused(coordinator.examine, stand)
        assert grant == f'create schema {NAME} authorization "{role}"'
        PostgresCoordinator(patient(postgres)).candidate("p", "owner").close()
        grant = refused(coordinator.examine, lambda: coordinator.pipeline_state("p"), stand)
        assert grant.startswith(f'grant usage, create on schema {NAME} to "{role}"; grant select')
        postgres_server.execute(f'grant usage on schema {NAME} to "{role}"', postgres)
        assert refused(coordinator.examine, stand) == grant
        for statement in grant.split("; "):
            postgres_server.execute(statement, postgres)
        coordinator.examine()
        stand()
        assert coordinator.watermark("p", LANE) == mark(1)
    finally:
        postgres_server.execute(f'drop owned by "{role}"', postgres)
        postgres_server.execute(f'drop role "{role}"', postgres)


def test_a_pooler_before_the_server_is_noticed(empty_state: str, postgres_server: PostgresServer) -> None:
    class Pooler(Proxy):
        """Gives clients a number of its own for their session, as poolers do."""

        def altered(self, data: bytes) -> bytes:
            at = data.find(b"K\x00\x00\x00\x0c")
            return data if at < 0 else data[: at + 5] + b"\x00\x00\x00\x07" + data[at + 9 :]

    with Pooler(postgres_server.port) as pooler, pytest.raises(StateInvalid, match="a connection pooler"):
        through(empty_state, pooler).pipeline_state("p")


# Secrets, and what is told of failures.


def test_no_password_shows_anywhere(postgres_server: PostgresServer) -> None:
    secret = "s3cret-p4ss"
    dsns = [
        f"postgresql://postgres:{secret}@127.0.0.1:{postgres_server.port}/postgres",
        f"postgresql://postgres@127.0.0.1:{postgres_server.port}/postgres?password={secret}",
        f"postgresql://postgres:{secret}@127.0.0.1:1/postgres",
        f"postgresql://postgres:{secret}@nowhere.invalid/postgres?sslpassword={secret}",
    ]
    for dsn in dsns:
        coordinator = PostgresCoordinator(dsn)
        with pytest.raises(StateUnavailable) as caught:
            coordinator.pipeline_state("p")
        for shown in (str(caught.value), repr(caught.value.__cause__), repr(coordinator), coordinator.address):
            assert secret not in shown
        assert dsn.partition("@")[2].partition("?")[0] in str(caught.value)
    for broken in (f"postgresql://u:{secret}/x@h/d", f"postgresql://u:1/{secret}@h/d", f"postgresql://u@h/d?{secret}=1"):
        with pytest.raises(ConfigInvalid) as refused:
            PostgresCoordinator(broken)
        assert secret not in str(refused.value)


def opened(dsn: str) -> StateStore | None:
    try:
        return StateStore(dsn)
    except StateUnavailable:  # a connection is not waited for longer than an answer
        return None


def test_an_answer_is_waited_for_as_long_as_the_address_says(empty_state: str) -> None:
    with closing(until(lambda: opened(empty_state))) as usual, pytest.raises(StateUnavailable):
        usual.rows("select pg_sleep(86400)")
    with closing(StateStore(patient(empty_state))) as other:
        assert other.rows("select pg_sleep(2.5), 1") == [("", 1)]
    with pytest.raises(ConfigInvalid, match="connect_timeout"):
        PostgresCoordinator(f"{empty_state}?connect_timeout=soon")


def test_without_its_client_the_extra_is_named(tmp_path: Path) -> None:
    script = """
import sys
sys.modules["psycopg"] = None
from penstock.config import parse
parse({"name": "p", "source": {"type": "sqlite", "database": "x"}, "sink": {"type": "discard"}, "state": sys.argv[1]})
"""
    done = subprocess.run([sys.executable, "-c", script, "postgresql://u:secret@h/d"], capture_output=True, text=True, check=False)
    assert "[config.invalid]" in done.stderr
    assert "penstock[postgres]" in done.stderr
    assert "secret" not in done.stderr


def test_a_pipeline_file_names_the_database_and_a_file_needs_no_client(empty_state: str) -> None:
    values = {"name": "p", "source": {"type": "sqlite", "database": "x"}, "sink": {"type": "discard"}}
    made = parse({**values, "state": empty_state}).state
    assert made == PostgresCoordinator(empty_state)
    assert pickle.loads(pickle.dumps(made)) == made
    script = "import sys; from penstock.config import parse; parse(eval(sys.argv[1])); print('psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, repr(values)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Terms.


def test_a_silent_holder_is_judged_by_the_observers_clock_and_no_other(
    clock: Clock, leader: PostgresCandidate, rival: PostgresCandidate, sql: Callable[[str], list[Any]]
) -> None:
    leader.campaign()
    for wall in ("1970-01-01", "2100-01-01"):
        sql(f"update {NAME}.terms set beat_at = '{wall}'")
        assert rival.campaign() is None
    clock.now += 9.9
    assert rival.campaign() is None
    leader.renew()
    clock.now += 9.9
    assert rival.campaign() is None
    clock.now += 10
    assert rival.campaign() == Term("p", "rival", 2)
    with pytest.raises(TermLost, match="another process"):
        leader.renew()


def test_a_beat_between_look_and_grasp_keeps_the_term(clock: Clock, leader: PostgresCandidate, rival: PostgresCandidate) -> None:
    leader.campaign()
    rival.campaign()
    clock.now += 10

    def renewing() -> float:
        leader.renew()
        return clock.now

    rival._clock = renewing  # the clock is read after the look and before the grasp
    assert rival.campaign() is None
    leader.renew()


def test_a_holder_whose_session_ended_goes_on_if_nobody_took_its_term(
    coordinator: PostgresCoordinator, leader: PostgresCandidate, sql: Callable[[str], list[Any]]
) -> None:
    with coordinator.claim(taken(coordinator, leader), LANE, 0) as held:
        end_sessions(sql)
        assert not coordinator.pipeline_state("p").is_held
        leader.renew()
        held.advance(mark(1), Tally(1, 1.0))
    assert coordinator.pipeline_state("p").is_held
    assert coordinator.pipeline_state("p").epoch == 1
    assert coordinator.watermark("p", LANE) == mark(1)


def test_a_holder_whose_session_ended_is_replaced_at_once_and_hears_of_it(
    coordinator: PostgresCoordinator, leader: PostgresCandidate, rival: PostgresCandidate, sql: Callable[[str], list[Any]]
) -> None:
    with coordinator.claim(taken(coordinator, leader), LANE, 0) as held:
        assert rival.campaign() is None
        end_sessions(sql)
        assert rival.campaign() == Term("p", "rival", 2)
        with pytest.raises(TermLost):
            leader.renew()
        with pytest.raises(TermLost):
            held.advance(mark(1), Tally(1, 1.0))
    assert coordinator.watermark("p", LANE) == mark(0)


def test_a_holder_that_cannot_renew_stops_trusting_itself_before_others_call_it_silent(
    empty_state: str, postgres_server: PostgresServer, clock: Clock
) -> None:
    with Proxy(postgres_server.port) as proxy:
        coordinator = through(empty_state, proxy, clock)
        with closing(coordinator.candidate("p", "leader")) as leader, closing(coordinator.candidate("p", "rival")):
            leader.campaign()
            proxy.cut()
            clock.now += 8.5
            with pytest.raises(StateUnavailable, match="no answer within"):
                leader.renew()
            with pytest.raises(TermLost, match="no time left"):
                leader.renew()
            proxy.heal()


def test_a_leader_that_is_cut_off_is_replaced_within_its_ttl_and_changes_nothing_afterwards(
    coordinator: PostgresCoordinator, rival: PostgresCandidate, clock: Clock, empty_state: str, postgres_server: PostgresServer
) -> None:
    own = Clock()
    with Proxy(postgres_server.port) as proxy, closing(through(empty_state, proxy, own).candidate("p", "leader")) as leader:
        old = leader.campaign()
        assert old == Term("p", "leader", 1)
        coordinator.place(old, {LANE: mark(0)})
        with through(empty_state, proxy).claim(old, LANE, 0) as held:
            held.advance(mark(5), Tally(1, 1.0))
            leader.renew()
            proxy.cut()
            assert rival.campaign() is None
            own.now, clock.now = own.now + 8.9, clock.now + 9.9
            with pytest.raises(StateUnavailable, match="no answer within"):
                leader.renew()
            own.now += 0.1
            with pytest.raises(TermLost):
                leader.renew()
            assert rival.campaign() is None, "the leader has stood down before"
            clock.now += 0.1
            term = rival.campaign()
            assert term == Term("p", "rival", 2)
            with coordinator.claim(term, LANE, 0) as claim:
                assert claim.watermark == mark(5)
                claim.advance(mark(6), Tally(1, 1.0))
                proxy.heal()
                with pytest.raises(TermLost):
                    held.advance(mark(9), Tally(1, 1.0))
            with pytest.raises(TermLost):
                leader.renew()
    assert coordinator.watermark("p", LANE) == mark(6)
    assert coordinator.pipeline_state("p").holder == "rival"


def test_a_child_that_was_forked_does_not_keep_its_dead_parents_term(
    coordinator: PostgresCoordinator, rival: PostgresCandidate
) -> None:
    script = """
import os, pickle, signal, sys, time
coordinator = pickle.loads(bytes.fromhex(sys.argv[1]))
candidate = coordinator.candidate("p", "parent")
assert candidate.campaign()
coordinator.pipeline_state("p")  # leaves an idle session, which the child must not use
if os.fork():
    candidate.renew()
    os.kill(os.getpid(), signal.SIGKILL)
assert coordinator.pipeline_state("p").epoch == 1
print(os.getpid(), flush=True)
time.sleep(86400)
"""
    parent = PostgresCoordinator(coordinator.dsn, ttl=PATIENCE)
    command = [sys.executable, "-c", script, pickle.dumps(parent).hex()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        child = int(process.stdout.readline())
        try:
            assert until(rival.campaign).epoch == 2
        finally:
            os.kill(child, signal.SIGKILL)


# Claims.


def test_what_was_written_before_the_session_ended_is_counted_once(
    coordinator: PostgresCoordinator, leader: PostgresCandidate, empty_state: str, postgres_server: PostgresServer
) -> None:
    term = taken(coordinator, leader)

    class Deaf(Proxy):
        """Carries what the client says, and at a word ends the connection instead of the answer."""

        is_deaf = False

        def altered(self, data: bytes) -> bytes:
            if self.is_deaf:
                raise ConnectionResetError
            return data

    with Deaf(postgres_server.port) as proxy, through(empty_state, proxy).claim(term, LANE, 0) as held:
        held.advance(mark(1), Tally(1))
        proxy.is_deaf = True
        with pytest.raises(StateUnavailable):
            held.advance(mark(3), Tally(2))
        until(lambda: coordinator.watermark("p", LANE) == mark(3))
        with pytest.raises(StateUnavailable):
            held.advance(mark(4), Tally(3))
        proxy.is_deaf = False
        held.advance(mark(5), Tally(4, 0.0, 1, 2))
        held.advance(mark(6), Tally(1))
    found = coordinator.pipeline_state("p")
    assert (found.delivered, found.dropped, found.passed) == (6, 1, 2)


def test_a_worker_whose_session_ended_and_whose_lane_was_taken_changes_nothing(
    coordinator: PostgresCoordinator, leader: PostgresCandidate, sql: Callable[[str], list[Any]]
) -> None:
    term = taken(coordinator, leader)
    with coordinator.claim(term, LANE, 0) as old:
        end_sessions(sql)
        leader.renew()
        with coordinator.claim(term, LANE, 1) as new:
            with pytest.raises(TermLost):
                old.advance(mark(9), Tally(9))
            new.advance(mark(1), Tally(1))
        assert coordinator.watermark("p", LANE) == mark(1)


def test_a_claim_of_an_older_term_cannot_move_what_was_placed_while_it_waited(
    coordinator: PostgresCoordinator, leader: PostgresCandidate, rival: PostgresCandidate, sql: Callable[[str], list[Any]]
) -> None:
    """It has looked at its term before that ended, and writes after the watermark was set back."""
    old = taken(coordinator, leader)
    coordinator.place(old, {LANE: mark(5)})
    with coordinator.claim(old, LANE, 0) as held, psycopg.connect(coordinator.dsn) as blocker, ThreadPoolExecutor(1) as pool:
        blocker.execute(f"select from {NAME}.watermarks for update")
        late = pool.submit(held.advance, mark(9), Tally(4))
        until(lambda: has_waiter(sql, blocker))
        leader.resign()
        new = rival.campaign()
        assert new
        back = {"pipeline": "p", "lane": LANE, "cursor": "c2", "position": 2, "delivered": 2, "epoch": new.epoch}
        blocker.execute(spelled(PLACE.format(schema=StateStore.schema)), back)
        blocker.commit()
        with pytest.raises(TermLost):
            late.result()
    assert coordinator.watermark("p", LANE) == mark(2)


def test_a_change_never_waits_for_a_letter_that_is_just_being_removed(
    coordinator: PostgresCoordinator, leader: PostgresCandidate, sql: Callable[[str], list[Any]]
) -> None:
    """Whoever removes the last letter of a key has seen all that waited: nothing may be parked behind it at that moment."""
    first, second = (DeadLetter("cafe", LANE, Change(at, Op.INSERT, "t", '{"id":1}'), "sink") for at in (5, 6))
    with coordinator.claim(taken(coordinator, leader), LANE, 0) as held, ThreadPoolExecutor(1) as pool:
        held.park([first])
        with psycopg.connect(coordinator.dsn) as remover:
            remover.execute("select pg_advisory_xact_lock(%s)", (number_of("letters", "p"),))
            follower = pool.submit(held.follow, [second])
            remover.execute(f"delete from {NAME}.dead_letters")
            remover.execute(f"delete from {NAME}.dead_rows")
            until(lambda: follower.done() or has_waiter(sql, remover))
        assert follower.result() == [False]
    assert coordinator.letters("p") == []


def test_tables_that_are_gone_are_told_as_such(
    coordinator: PostgresCoordinator, postgres: str, postgres_server: PostgresServer
) -> None:
    own = PostgresCoordinator(patient(postgres))
    with closing(own.candidate("p", "leader")) as leader:
        leader.campaign()
        postgres_server.execute(f"drop schema {NAME} cascade", postgres)
        with pytest.raises(StateInvalid, match="does not exist") as caught:
            leader.renew()
        assert isinstance(caught.value, PenstockError)


def test_a_restart_and_a_crash_of_the_server_lose_nothing_and_end_no_claim(breakable_postgres: PostgresServer) -> None:
    coordinator = PostgresCoordinator(patient(breakable_postgres.create_database()), ttl=86_400.0)
    with closing(coordinator.candidate("p", "leader")) as leader:
        term = taken(coordinator, leader)
        with coordinator.claim(term, LANE, 0) as held:
            for position, end in enumerate((breakable_postgres.stop, breakable_postgres.kill), 1):
                held.advance(mark(position), Tally(1))
                end()
                with pytest.raises(StateUnavailable):
                    held.advance(mark(9), Tally(1))
                with pytest.raises(StateUnavailable):
                    leader.renew()
                with pytest.raises(StateUnavailable):
                    coordinator.pipeline_state("p")
                breakable_postgres.start()
                leader.renew()
            held.advance(mark(3), Tally(1))
        assert coordinator.watermark("p", LANE) == mark(3)
        assert coordinator.pipeline_state("p").delivered == 3
        assert coordinator.pipeline_state("p").epoch == term.epoch

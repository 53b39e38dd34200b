"""Changes as rows of a PySpark user's own queries: a session that is not ours, a real database, Spark's own checkpoints."""

import os
import re
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml
from pyspark.errors import PySparkException

from deadline import PATIENCE, until
from penstock.change import CHANGES
from penstock.config import load
from penstock.errors import from_text
from penstock.outbox import stash
from penstock.sources.outbox.naming import Names
from penstock.sources.outbox.schema import init
from penstock.sources.sqlite.source import LANE
from penstock.spark import register
from shop import Shop

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


class Market:
    """A shop with some changes, its pipeline file, and a session that has just been taught to read it."""

    def __init__(self, session, folder):
        self.session, self.folder, self.shop = session, folder, Shop(folder / "shop.db")
        self.file = folder / "orders.yaml"
        source = {"type": "sqlite", "database": "shop.db"}
        self.file.write_text(yaml.safe_dump({"name": "orders", "source": source, "sink": {"type": "discard"}}))
        self.source = load(self.file).source
        self.shop.sell(20)

    def sell_at_once(self, changes):
        numbers = f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {changes})"
        with self.shop.transaction() as work:
            work.many("orders", "insert", f"insert into orders(id) {numbers} select i from n")

    def read(self, **options):
        return self.session.read.format("penstock").options(pipeline=str(self.file), **options).load()

    def positions(self, **options):
        return sorted(row.position for row in self.read(**options).select("position").collect())

    def follow(self, deed=None, checkpoint="checkpoint", **options):
        """A stream of what is there, batch by batch: {number: positions}, or what the deed makes of it."""
        seen = {}
        stream = self.session.readStream.format("penstock").options(pipeline=str(self.file), **options).load()
        writing = stream.writeStream.foreachBatch(deed or (lambda batch, number: seen.update({number: sorted(batch.collect())})))
        query = writing.option("checkpointLocation", str(self.folder / checkpoint)).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(PATIENCE)
        finally:
            query.stop()
        return {number: [row.position for row in rows] for number, rows in seen.items() if rows}

    def error(self, deed):
        with pytest.raises(PySparkException) as caught:
            deed()
        return from_text(str(caught.value))


@pytest.fixture(scope="module")
def session(spark):
    made = spark.newSession()
    made.conf.set("spark.sql.shuffle.partitions", "2")
    register(made)
    register(made)
    return made


@pytest.fixture
def market(session, tmp_path):
    return Market(session, tmp_path)


def test_changes_are_rows_with_the_documented_columns(market):
    changes = market.read()
    shown = re.findall(r"^\| (`.+?`) \| (\w+) \|", PAGE.split("## Columns")[1].split("## Options")[0], re.MULTILINE)
    documented = [(name, kind) for names, kind in shown for name in re.findall(r"`(\w+)`", names)]
    assert changes.dtypes == documented
    assert changes.columns == CHANGES.names
    [first] = changes.where("position = 1").collect()
    assert (first.op, first.table, first.before) == ("insert", "orders", None)
    assert first.after == '{"id":1000002,"customer":1,"total":9.5,"note":null}'


def test_a_batch_reads_what_was_there_at_load_or_what_lies_between_two_positions(market):
    changes = market.read()
    market.shop.sell(5)
    assert changes.count() == 20, "the same DataFrame had more rows the second time"
    assert market.positions() == list(range(1, 26))
    assert market.positions(**{"from": "5", "to": "12"}) == list(range(6, 13))
    assert market.positions(**{"from": "now"}) == []


def test_a_large_batch_is_read_in_parallel_and_every_change_once(market):
    market.sell_at_once(30_000)
    changes = market.read(partitions="3")
    assert changes.rdd.getNumPartitions() == 3
    assert market.positions(partitions="3") == list(range(1, 30_021))


def test_a_stream_goes_on_from_its_checkpoint_in_batches_no_larger_than_allowed(market):
    assert market.follow(maxChangesPerTrigger="8") == {0: list(range(1, 7)), 1: list(range(7, 14)), 2: list(range(14, 21))}
    market.shop.sell(3)
    assert market.follow() == {3: [21, 22, 23]}
    assert market.follow() == {}


def test_a_batch_that_is_repeated_after_a_crash_has_the_same_rows(market):
    seen = []

    def failing_once(batch, number):
        seen.append((number, sorted(batch.collect())))
        if len(seen) == 1:
            raise RuntimeError("the job of this test has failed")

    with pytest.raises(PySparkException, match="the job of this test has failed"):
        market.follow(failing_once)
    market.shop.sell(4)
    market.follow(failing_once)
    assert [(number, len(rows)) for number, rows in seen] == [(0, 20), (0, 20), (1, 4)]
    assert seen[0] == seen[1]


def test_a_stream_without_a_checkpoint_begins_where_it_is_told(market):
    assert market.follow(checkpoint="a", **{"from": "now"}) == {}
    assert market.follow(checkpoint="b", **{"from": "17"}) == {0: [18, 19, 20]}


def test_a_stream_that_goes_on_gets_what_is_committed_meanwhile(market):
    stream = market.session.readStream.format("penstock").load(str(market.file))
    writing = stream.writeStream.format("memory").queryName("going_on")
    query = writing.option("checkpointLocation", str(market.folder / "checkpoint")).start()
    try:
        until(lambda: market.session.table("going_on").count() == 20)
        market.shop.sell(2)
        until(lambda: market.session.table("going_on").count() == 22)
    finally:
        query.stop()


def prune(market, upto):
    """Let another pipeline deliver everything up to there, and the log be pruned."""
    cursor = market.source.begin(LANE, str(upto))
    with closing(market.shop._connect()) as open_meanwhile:  # so that its files stay
        open_meanwhile.execute("select 1 from orders").fetchone()
        market.source.retention.register("other", LANE, cursor)
        for file in market.folder.glob("shop.db*"):
            os.utime(file, (0, 0))  # nobody has written for long, so nobody is disturbed
        market.source.retention.settle("other", LANE, cursor)


def first_position(market):
    with closing(market.shop._connect()) as connection:
        return connection.execute("select min(seq) from _penstock_log").fetchone()[0]


def test_a_named_reader_keeps_the_log_from_being_pruned_under_it(market):
    market.follow(reader="dashboard")
    noted = market.source.retention.registered("dashboard", LANE)
    assert noted is not None
    market.sell_at_once(700)
    prune(market, 700)
    assert first_position(market) <= noted + 1
    assert market.follow(reader="dashboard")[1] == list(range(21, 721))
    assert market.source.retention.forget("dashboard")


def test_a_reader_without_a_name_is_told_that_its_place_was_pruned(market):
    market.follow()
    market.sell_at_once(700)
    prune(market, 700)
    assert first_position(market) > 21
    assert market.error(market.follow).code == "source.pruned"


def test_a_checkpoint_of_another_database_is_noticed(market, tmp_path):
    market.follow()
    for file in tmp_path.glob("shop.db*"):
        file.unlink()
    market.shop = Shop(tmp_path / "shop.db")
    market.shop.sell(3)
    assert market.error(market.follow).code == "source.rewound"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"form": "now"}, "unknown option form"),
        ({"from": "yesterday"}, "'yesterday' is no place to start at"),
        ({"from": "12", "to": "5"}, "option to lies before option from"),
        ({"from": "900"}, "the log has no change 900"),
        ({"partitions": "many"}, "option partitions is 'many'"),
        ({"maxChangesPerTrigger": "0"}, "option maxChangesPerTrigger is '0'"),
        ({"reader": "orders"}, "option reader is 'orders'"),
        ({"pipeline": "nowhere.yaml"}, "cannot read nowhere.yaml"),
        ({"pipeline": ""}, "the option pipeline is missing"),
    ],
)
def test_a_wrong_option_is_an_error_of_ours(market, options, said):
    error = market.error(
        lambda: market.session.read.format("penstock").options(**{"pipeline": str(market.file)} | options).load().count()
    )
    assert error.code == "config.invalid"
    assert said in error.message
    assert error.remedy


def test_no_task_and_no_plan_of_a_job_has_the_password_of_its_source(session, postgres, tmp_path):
    init(postgres, Names("outbox"))
    with psycopg.connect(postgres) as writer:
        stash(writer, "orders", "k", "v")
    (tmp_path / "dsn.txt").write_text(postgres)
    file = tmp_path / "orders.yaml"
    source = {"type": "outbox", "database": "${file:dsn.txt}"}
    file.write_text(yaml.safe_dump({"name": "orders", "source": source, "sink": {"type": "discard"}}))
    changes = session.read.format("penstock").load(str(file))
    assert changes.count() == 1
    execution, password = changes._jdf.queryExecution(), urlsplit(postgres).password
    task = bytes(
        session._jvm.org.apache.spark.util.Utils.serialize(execution.executedPlan().collectLeaves().head().readerFactory())
    )
    assert b"${file:dsn.txt}" in task
    assert password.encode() not in task
    assert password not in execution.toString()


def test_changes_cannot_be_written(market):
    stream = market.session.readStream.format("penstock").load(str(market.file))
    writing = stream.writeStream.format("penstock").option("pipeline", str(market.file))

    def write():
        writing.option("checkpointLocation", str(market.folder / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    assert "can only be read" in market.error(write).message


def test_the_page_for_pyspark_users_runs_as_it_stands(market, capsys):
    market.shop.sell(3)
    [file] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    market.file.write_text(file)
    script = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    for path in ("orders.yaml", "changes", "checkpoints/changes", "checkpoints/per_minute"):
        script = script.replace(f'"{path}"', repr(str(market.folder / path)))
    scope = {"spark": market.session}
    exec(script, scope)
    assert scope["large"] == 0
    assert scope["state"].count() == 23
    assert scope["by_region"].collect() == [("north", 23 * 9.5)]
    assert scope["spark"].read.parquet(str(market.folder / "changes")).count() == 23
    assert sum(row["count"] for row in scope["spark"].table("per_minute").collect()) == 23
    assert "[config.invalid] unknown option form" in capsys.readouterr().out

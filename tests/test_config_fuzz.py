"""Whatever a file contains, its loader gives a pipeline or says what is wrong with it; it never ends with anything else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from examples import examples
from penstock import config, registry
from penstock.cli import main
from penstock.config import known_keys
from penstock.config.document import Key
from penstock.errors import ConfigInvalid, ConfigUnsupported
from penstock.harvest import config as reaper
from penstock.harvest.translation import pipeline

DEEP = 10_000
SPELLED = (
    *("0x_", "0b_", "0o7", "-.", "1_0", "1:99:99", "!!int abc", "!!float x", "!!bool maybe", "!!null x", "!foo:int 3", "!!int [1]"),
    *("!!timestamp 2026-13-45", "2026-13-45", "2026-02-30T25:61:61Z", "0001-01-01", "99999-01-01T00:00:00+99:99", "!!binary '*'"),
    *(".inf", "-.inf", ".nan", "1e999", "1.0e+999", "-1.0e-999", "9" * 5000, "-" + "9" * 30, "0x" + "f" * 5000, "1" * 400 + ".0"),
    *(r'"\0"', r'"a\0b.db"', r'"\ud800"', r'"\U0010ffff"', r'"\e]0;x\a"', r'"\u202e"', "''", "~", "{}", "[]", "[{}]", "{a: }", "-"),
    *(
        "yes",
        "off",
        "0",
        "-1",
        "1",
        "1.5",
        "'1'",
        "2026-01-01",
        "&x y",
        "*x",
        "<<",
        "{<<: {a: 1}}",
        "? a",
        "{[1]: 2}",
        "{{a: 1}: 2}",
    ),
    *("[" * 200 + "]" * 200, "{a: " * 200 + "}" * 200, "http://[", "http://h:99999999/", "http://h:x/", "https://a b/", "http:///"),
    *("http://u:p@h/", "http://\u202e/", "postgresql://", "postgresql://h:x/d", "postgresql:///%00", "postgresql://[", "kafka://"),
    *(
        "kafka://h:1/t",
        "kafka://h:1/t?session-timeout=x",
        "kafka://[/",
        "kafka://h:1/t?a.b=%00",
        "rqlite://h",
        "mysql://",
        "mariadb://[",
    ),
    *(
        "mysql://u:%00@h:99999/d",
        "~",
        "'~nosuchuser/x'",
        "/",
        ".",
        "shop.db",
        "x" * 5000,
        "(",
        "'(' ",
        "a{99999999999}",
        "'" + "(" * 5000 + "'",
    ),
    *(
        "1ms",
        "5s",
        "99999999999999999999d",
        "0.0000000000001ms",
        f"{'9' * 400}d",
        "٣s",
        "whsec_",
        "whsec_!",
        "[whsec_AAAA]",
        "x:y",
        "a.b:c",
    ),
    *(
        "${GONE}",
        "${file:gone}",
        '"${file:a\\0b}"',
        "${file:/}",
        "${file:~nosuchuser/x}",
        '"${A\\0}"',
        "'${'",
        "$${x}",
        "${file:}",
        "${}",
    ),
)
"""Values as a file may spell them: wrong numbers, dates and addresses, characters that no path has, what is too long or deep."""

KINDS: Mapping[Key, list[str]] = {
    ("source", "type"): [*registry.sources(), "rqlite"],
    ("source", "reader"): [reader for kind in registry.sources().values() for reader in kind.readers],
    ("sink", "type"): [*registry.sinks(), "table"],
    ("sink", "delivery"): ["exactly-once", "at-least-once", "barrier"],
    ("sink", "format"): ["penstock", "rqlite", "row"],
    ("state",): [f"{scheme}://h:1/t" for scheme in registry.schemes()],
}
KEYS = sorted(
    {*known_keys(), *KINDS, ("source",), ("sink",), ("transform",), ("spark",), ("sink", "retry"), ("sink", "tls"), ("x",)}
)
REAPER_KEYS = [
    ("harvest",),
    ("logging",),
    ("logging", "level"),
    ("harvest", "limits"),
    *(("harvest", key) for key in (*reaper._STRINGS, *reaper._MAPPINGS)),
    *(("harvest", key, "bootstrap.servers") for key in reaper._MAPPINGS),
    *(("harvest", "limits", key) for key in reaper._LIMITS),
]

LEAST: list[dict[Key, str]] = [
    {
        ("name",): "a",
        ("source", "type"): "sqlite",
        ("source", "database"): "a.db",
        ("sink", "type"): "webhook",
        ("sink", "url"): "http://h/",
    },
    {
        ("name",): "a",
        ("source", "type"): "outbox",
        ("source", "database"): "postgresql://u@h/d",
        ("sink", "type"): "kafka",
        ("sink", "config"): "{bootstrap.servers: 'h:1'}",
        ("state",): "kafka://h:1/t",
    },
    {
        ("name",): "a",
        ("source", "type"): "outbox",
        ("source", "reader"): "mark",
        ("source", "database"): "a.db",
        ("sink", "type"): "discard",
    },
]
VALID = """\
name: orders
source: {type: sqlite, database: shop.db, tables: "orders|items", start: now, retain: {history: 1d}}
transform:
  where: "table = 'orders'"
  select: {total: "after:total"}
sink:
  type: webhook
  url: https://example.org/hooks/orders
  batch: {size: 7, delay: 20ms}
  retry: {tries: forever, policy: linear, min: 2s, max: 1m, then: halt}
  headers: {Authorization: "Bearer x"}
state: state/penstock.db
term: 9s
spark: {master: "local[4,4]", config: {spark.ui.enabled: "false"}}
"""
REAPER = """\
harvest:
  baseKafkaConfig: {bootstrap.servers: localhost:9092}
  leaderTopic: topic
  dataSource: "host=localhost port=5432 user=postgres dbname=postgres sslmode=disable"
  limits: {minPollInterval: 1ms, heartbeatTimeout: 5s, maxInFlightRecords: 10}
logging:
  level: Debug
"""


def spelled(value: Any) -> str:
    """A value in YAML, which JSON is."""
    return json.dumps(value)


SCALARS = st.sampled_from(SPELLED) | st.builds(
    spelled, st.text() | st.integers() | st.floats() | st.booleans() | st.none() | st.dates().map(str)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(SCALARS, inner, max_size=3).map(
            lambda found: "{" + ", ".join(f"{k}: {v}" for k, v in found.items()) + "}"
        )
    ),
    max_leaves=4,
)


def written(found: Mapping[Key, str]) -> str:
    """These keys and their spelled values as a file; of one that is above others, the others count."""
    tree: dict[str, Any] = {}
    for key, value in found.items():
        place = tree
        for name in key[:-1]:
            if not isinstance(place.get(name), dict):
                place[name] = {}
            place = place[name]
        if not isinstance(place.get(key[-1]), dict):
            place[key[-1]] = value
    return _flow(tree)[1:-1].strip() if not tree else "\n".join(f"{name}: {_flow(value)}" for name, value in tree.items()) + "\n"


def _flow(value: Any) -> str:
    return "{" + ", ".join(f"{name}: {_flow(one)}" for name, one in value.items()) + "}" if isinstance(value, dict) else str(value)


def files(keys: list[Key], bases: list[dict[Key, str]]) -> st.SearchStrategy[str]:
    """Files with some of these keys, beside the least that a file needs, with anything as their values."""
    changed = st.dictionaries(st.sampled_from(keys), VALUES, max_size=4)
    fitting = st.fixed_dictionaries({}, optional={key: st.sampled_from(words) for key, words in KINDS.items()})
    return st.builds(lambda base, more, other: written({**base, **more, **other}), st.sampled_from(bases), fitting, changed)


def mutations(text: str) -> st.SearchStrategy[str]:
    """This text with a few pieces of it replaced."""
    piece = st.tuples(st.integers(0, len(text)), st.integers(0, 12), st.text(max_size=5) | st.sampled_from(SPELLED))
    return st.lists(piece, max_size=4).map(lambda pieces: _replaced(text, pieces))


def _replaced(text: str, pieces: list[tuple[int, int, str]]) -> str:
    for start, length, other in pieces:
        text = text[:start] + other + text[start + length :]
    return text


TEXTS = st.text() | st.text("{}[]:-?!&*'\"#|>%@`, \n\tab01.~$<=") | st.lists(st.sampled_from(SPELLED)).map("\n".join)
DEEPEST = ["[" * DEEP, "{a: " * DEEP, "- " * DEEP + "x", "".join(f"{' ' * n}a:\n" for n in range(DEEP // 10)), "? " * DEEP + "x"]

Load = Callable[[Path], object]


def answered(load: Load, file: Path, text: str) -> None:
    """Load this text; an error must be one of the file, with a remedy, on a line of its own."""
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    error = None
    try:
        load(file)
    except (ConfigInvalid, ConfigUnsupported) as raised:
        error = raised
    assert error is None or (error.message and error.remedy and len(error.message) < 100_000), error


def harvested(file: Path) -> object:
    """Read a file of goharvest, and make a pipeline of it."""
    return config.parse(pipeline(reaper.load(file).harvest), file.parent)


FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@settings(FUZZ, max_examples=examples(400))
@given(files(KEYS, LEAST) | mutations(VALID) | TEXTS)
@example(VALID)
@example("${MISSING}")
def test_any_pipeline_file_is_loaded_or_refused(tmp_path: Path, text: str) -> None:
    answered(config.load, tmp_path / "p.yaml", text)


@settings(FUZZ, max_examples=examples(200))
@given(files(REAPER_KEYS, [{}]) | mutations(REAPER) | TEXTS)
@example(REAPER)
def test_any_file_of_goharvest_is_loaded_or_refused(tmp_path: Path, text: str) -> None:
    answered(harvested, tmp_path / "reaper.yaml", text)


@pytest.mark.parametrize("base", range(len(LEAST)))
def test_any_strange_value_of_any_key_is_loaded_or_refused(base: int, tmp_path: Path) -> None:
    """Each key meets some of the values, and each value some of the keys: all pairs would take minutes."""
    for number, value in enumerate(SPELLED):
        for key in KEYS[(number + base) % 18 :: 18]:
            answered(config.load, tmp_path / "p.yaml", written({**LEAST[base], key: value}))
        for key in REAPER_KEYS[(number + base) % 12 :: 12]:
            answered(harvested, tmp_path / "reaper.yaml", written({key: value}))


@pytest.mark.parametrize("text", DEEPEST, ids=lambda text: text[:5])
def test_a_file_that_is_nested_too_deeply_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, words in {"p.yaml": ["validate"], "reaper.yaml": ["reap", "--print-pipeline", "-f"]}.items():
        (tmp_path / name).write_text(text)
        assert main([*words, str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert said.startswith("config.invalid\n")
        assert "nested deeper" in said
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r'state: "a\0b.db"', "state (line 1) contains a NUL"),
        (r'name: "\ud800"', "name (line 1) contains a NUL or a lone surrogate: remove it"),
        ("mode: 0x_", "mode (line 1) is 0x_, which is not a usable number"),
        ("mode: !!int abc", "mode (line 1) is abc, which is not a usable number"),
        ("mode: !!bool maybe", "mode (line 1) is maybe, which is not a usable number"),
        ("mode: " + "9" * 5000, f"mode (line 1) is {'9' * 40}..., which is not a usable number"),
        ("mode: 0x" + "f" * 5000, "which is not a usable number"),
        ("mode: -.inf", "mode (line 1) is -.inf, which is not a usable number"),
        ("mode: 1.0e+999", "mode (line 1) is 1.0e+999, which is not a usable number"),
        ("[a, b]: c", "line 1 has a key that is not text: write a name"),
        ('state: "${file:a\\0b}"', "cannot be read (embedded null byte)"),
        ("mode: " + "[" * 60 + "]" * 60, "line 1: nested deeper than 50 levels"),
    ],
    ids=lambda text: text[:16],
)
def test_what_cannot_be_a_value_is_told_with_its_key_and_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.yaml").write_text(text + "\n")
    assert main(["validate", str(tmp_path / "p.yaml")]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "what to do: " in told
    assert "Traceback" not in told


def test_values_and_names_that_come_from_a_program_are_refused_in_the_same_way(tmp_path: Path) -> None:
    sink = {"type": "discard"}
    for part in (
        {"source": {"type": "sqlite", "database": "a\0b"}},
        {"source": {"type": "sqlite", "database": "a"}, "state": "\0"},
    ):
        with pytest.raises(ConfigInvalid, match="NUL"):
            config.parse({"name": "a", "sink": sink, **part}, tmp_path)
    with pytest.raises(ConfigInvalid, match="null byte"):
        config.load("a\0b")


@pytest.mark.parametrize("tables", ["(", "a{99999999999}", "(" * 5000])
def test_an_expression_that_cannot_be_compiled_is_told_with_its_key(tables: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(written({**LEAST[0], ("source", "tables"): spelled(tables)}))
    with pytest.raises(ConfigInvalid, match=r"source\.tables \(line 2\): .* is not a regular expression") as caught:
        config.load(tmp_path / "p.yaml")
    assert caught.value.remedy


def test_a_file_of_goharvest_that_is_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("binary", "."):
        assert main(["reap", "--print-pipeline", "-f", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err.startswith("config.invalid\n")

"""`penstock dead`: the changes that could not be delivered, what they are, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock import printable
from penstock.errors import ConfigInvalid

if TYPE_CHECKING:
    from penstock.letter import DeadLetter
    from penstock.pipeline import Pipeline
    from penstock.redrive import Redriven

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Look at dead letters, the changes that could not be delivered; send them again, or give them up.",
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="A pipeline file.")]
Which = Annotated[
    list[str] | None,
    typer.Argument(metavar="WHICH", help="Numbers of `penstock dead list`; or `table=NAME`, `key=JSON`, `position=N`; or `all`."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per letter and line.")]


@app.command("list")
def list_(file: File, which: Which = None, as_json: AsJson = False) -> None:
    """List dead letters, in the order in which they would be sent.

    Examples: `penstock dead list orders.yaml`, `penstock dead list orders.yaml table=orders 'key={"id":5}'`
    """
    from penstock.cli import terminal
    from penstock.letter import ordered

    pipeline = _loaded(file)
    chosen = _choice(which or ["all"])
    found = [letter for letter in ordered(pipeline.state.letters(pipeline.name)) if chosen(letter)]
    if as_json:
        _print(map(described, found))
        return
    columns = ("NUMBER", "POSITION", "TABLE", "KEY", "OP", "STAGE", "WHY", "TRIES", "PARKED AT")
    if found:
        terminal.show(terminal.table(None, columns, [_row(letter) for letter in found]))
    behind = sum(letter.is_behind for letter in found)
    terminal.say(f"{len(found)} dead letters, {behind} of them wait behind another of their key.")


@app.command()
def show(file: File, which: Which = None, as_json: AsJson = False) -> None:
    """Show dead letters whole: the change as it was parked, and the error.

    Example: `penstock dead show orders.yaml 12`
    """
    from penstock.cli import terminal

    pipeline = _loaded(file)
    found = _found(pipeline, _choice(which or []))
    if as_json:
        _print(map(described, found))
        return
    for letter in found:
        for name, value in described(letter).items():
            terminal.say(f"{name:>12}  {value if isinstance(value, str) else printable.as_json(value)}")
        terminal.say("")


@app.command()
def redrive(
    file: File,
    which: Which = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also what later changes of its key have passed, or the pipeline has not come to."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters again, also while the pipeline runs: each once, those of a key in order, with all that wait behind them.

    A letter is gone when it was taken. Exit code 1 if one of them was not.

    Examples: `penstock dead redrive orders.yaml all`, `penstock dead redrive orders.yaml 12 13`
    """
    from penstock import redrive
    from penstock.cli import terminal

    pipeline = _loaded(file, delivers=True)
    chosen = _choice(which or [])
    if which != ["all"]:  # that may be none, as every night when nothing has gone wrong
        _found(pipeline, chosen)
    told = []
    for one in redrive.redrive(pipeline, chosen, force):
        told.append(one)
        terminal.say(printable.as_json(_fact(one)) if as_json else _line(one))
    if not as_json:
        terminal.say(_summary(told))
    if any(one.outcome not in ("sent", "left out") for one in told):
        raise typer.Exit(1)


@app.command()
def drop(
    file: File,
    which: Which = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give dead letters up for good. What waits behind them stays parked until it is redriven.

    Examples: `penstock dead drop orders.yaml 12`, `penstock dead drop orders.yaml table=drafts --yes`
    """
    from penstock import redrive
    from penstock.cli import terminal
    from penstock.rows import touching

    pipeline = _loaded(file)
    chosen = _choice(which or [])
    found = _found(pipeline, chosen)
    if not yes:
        terminal.confirm(f"Give up {len(found)} changes of {pipeline.name} that were never delivered?", err=as_json)
    shown = {letter.number for letter in found}  # more may have come since
    gone = redrive.drop(pipeline, lambda letter: letter.number in shown)
    if as_json:
        _print(map(described, gone))
        return
    rows = {row for letter in gone for row in letter.rows}
    is_bound = touching(rows)
    bound = sum(is_bound(letter.rows) for letter in pipeline.state.letters(pipeline.name))
    terminal.say(f"{len(gone)} dead letters are dropped.")
    if bound:
        terminal.say(f"{bound} other letters of their keys are still parked: penstock dead redrive {file} WHICH")


def described(letter: DeadLetter) -> dict[str, Any]:
    """A letter as `--json` tells it."""
    from penstock.formats.text import instant
    from penstock.message import headers_text

    change = letter.change
    headers = headers_text(change.headers) if change.headers else None
    texts = {"before": change.before, "after": change.after, "headers": headers}
    images = {name: text and json.loads(text) for name, text in texts.items()}
    rest = {name: getattr(change, name) for name in ("error", "transaction", "schema")}
    return {
        "number": letter.number,
        "position": change.position,
        "ordinal": change.ordinal,
        "table": change.table,
        "key": json.loads(change.key_text),
        "op": str(change.op),
        **{name: value for name, value in (images | json.loads(change.facts or "{}") | rest).items() if value is not None},
        "at": instant(change.at),
        "stage": letter.stage,
        "behind": letter.is_behind,
        "holds": letter.holds,
        "overtaken": letter.is_overtaken,
        "overtaken_by": letter.overtaken_by,
        "code": letter.code or None,
        "message": letter.message or None,
        "tries": letter.tries,
        "lane": letter.lane,
        "incarnation": letter.incarnation,
        "epoch": letter.epoch,
        "parked_at": letter.parked_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def _loaded(file: Path, *, delivers: bool = False) -> Pipeline:
    from penstock.config import load

    return load(file, delivers=delivers)


def _choice(which: Sequence[str]) -> Callable[[DeadLetter], bool]:
    """Which letters are meant: one of the numbers, if there are any, and all else that is said. Raises ConfigInvalid."""
    numbers = {int(word) for word in which if word.isdecimal()}
    said = [_condition(word) for word in which if not word.isdecimal()]
    if not which:
        raise ConfigInvalid("no letter is named", f"say which: {_WHICH}")
    return lambda letter: (not numbers or letter.number in numbers) and all(holds(letter) for holds in said)


_WHICH = """numbers of `penstock dead list`, table=NAME, key=JSON, position=N, or all"""


def _condition(word: str) -> Callable[[DeadLetter], bool]:
    name, _, value = word.partition("=")
    if word == "all":
        return lambda letter: True
    if name == "table" and value:
        return lambda letter: letter.change.table == value
    if name == "position" and value.isdecimal():
        return lambda letter: letter.change.position == int(value)
    if name == "key":
        wanted = _key(value)
        return lambda letter: json.loads(letter.change.key_text) == wanted
    raise ConfigInvalid(f"{word!r} names no letter", f"say which: {_WHICH}")


def _key(text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigInvalid(f"key={text} is no JSON object", "write it like the column KEY: 'key={\"id\":5}'")
    return found


def _found(pipeline: Pipeline, chosen: Callable[[DeadLetter], bool]) -> list[DeadLetter]:
    letters = pipeline.state.letters(pipeline.name)
    if not (found := [letter for letter in letters if chosen(letter)]):
        there = f"{pipeline.name} has {len(letters)}: penstock dead list FILE" if letters else f"{pipeline.name} has none"
        raise ConfigInvalid("there is no such dead letter", there)
    return found


def _print(facts: Iterable[Any]) -> None:
    from penstock.cli import terminal

    for fact in facts:
        terminal.say_json(fact)


def _row(letter: DeadLetter) -> list[str]:
    change = letter.change
    place = str(change.position) if change.ordinal is None else f"{change.position}.{change.ordinal}"
    why = "waits behind another" if letter.is_behind else letter.message
    at = letter.parked_at.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    return [str(letter.number), place, change.table, change.key_text, str(change.op), letter.stage, why, str(letter.tries), at]


def _fact(one: Redriven) -> dict[str, Any]:
    letter = one.letter
    told = {"number": letter.number, "position": letter.change.position, "table": letter.change.table, "outcome": one.outcome}
    return told | {"error": one.error.facts() if one.error else None}


_WORDS = {
    "sent": "sent",
    "left out": "left out by the transform",
    "failed": "failed again",
    "waits": "waits behind one that failed",
    "early": "not sent: changes before it are not delivered yet; try again once the pipeline has come to it (--force sends it now)",
    "overtaken": "not sent: later changes of its key went on, and it would put an old image behind them (--force sends it)",
}


def _line(one: Redriven) -> str:
    change = one.letter.change
    why = f": {one.error.message}" if one.error else ""
    return f"{one.letter.number}  change {change.position} of {change.table}, key {change.key_text}  {_WORDS[one.outcome]}{why}"


def _summary(told: Sequence[Redriven]) -> str:
    done = sum(one.outcome in ("sent", "left out") for one in told)
    return f"{done} of {len(told)} dead letters are gone." + ("" if done == len(told) else " The others are still parked.")

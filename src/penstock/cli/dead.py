"""`penstock dead`: list, show, redrive and drop dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

import penstock
from penstock.cli import terminal
from penstock.cli.options import AsJson, File, Yes, group
from penstock.errors import ConfigInvalid
from penstock.text import printable

if TYPE_CHECKING:
    from penstock.letter import DeadLetter
    from penstock.pipeline import Pipeline
    from penstock.running.redrive import Redriven

app = group("Show dead letters, the changes that could not be delivered; send them again, or drop them.")

Which = Annotated[
    list[str] | None,
    typer.Argument(metavar="WHICH", help="Numbers of `penstock dead list`; or `table=NAME`, `key=JSON`, `position=N`; or `all`."),
]


@app.command("list")
def list_(file: File, which: Which = None, as_json: AsJson = False) -> None:
    """List dead letters in the order in which `redrive` sends them.

    Examples: `penstock dead list orders.yaml`, `penstock dead list orders.yaml table=orders 'key={"id":5}'`
    """
    from penstock.letter import ordered

    pipeline, chosen = penstock.load(file, delivers=False), _choice(which or ["all"])
    found = [letter for letter in ordered(pipeline.state.letters(pipeline.name)) if chosen(letter)]
    if as_json:
        terminal.say_json(*map(described, found))
        return
    columns = ("NUMBER", "POSITION", "TABLE", "KEY", "OP", "STAGE", "WHY", "TRIES", "PARKED AT")
    if found:
        terminal.show(terminal.table(columns, [_row(letter) for letter in found]))
    behind = sum(letter.is_behind for letter in found)
    terminal.say(f"{len(found)} dead letters, {behind} of them wait for another of their key.")


@app.command()
def show(file: File, which: Which = None, as_json: AsJson = False) -> None:
    """Show all details of dead letters: the change as it was parked, and the error.

    Example: `penstock dead show orders.yaml 12`
    """
    found = _found(penstock.load(file, delivers=False), _choice(which or []))
    if as_json:
        terminal.say_json(*map(described, found))
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
        typer.Option(
            "--force", help="Also send letters that later changes of their key have passed, or that the pipeline has not reached."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters again, with the letters that wait for them, those of a key in order. The pipeline may run.

    A letter is removed when the destination accepts it. Exit code 1 if a letter was not accepted.

    Examples: `penstock dead redrive orders.yaml all`, `penstock dead redrive orders.yaml 12 13`
    """
    from penstock.running import redrive

    pipeline, chosen = penstock.load(file), _choice(which or [])
    if which != ["all"]:  # `all` may match no letter, such as in a scheduled job
        _found(pipeline, chosen)
    done = []
    for one in redrive.redrive(pipeline, chosen, force):
        done.append(one)
        terminal.say_json(_fact(one)) if as_json else terminal.say(_line(one))
    kept = sum(one.outcome not in ("sent", "left out") for one in done)
    if not as_json:
        rest = " The others are still parked." if kept else ""
        terminal.say(f"{len(done) - kept} of {len(done)} dead letters are removed.{rest}")
    if kept:
        raise typer.Exit(1)


@app.command()
def drop(file: File, which: Which = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove dead letters for good. Letters that wait for them stay parked until they are redriven.

    Examples: `penstock dead drop orders.yaml 12`, `penstock dead drop orders.yaml table=drafts --yes`
    """
    from penstock.rows import touching
    from penstock.running import redrive

    pipeline = penstock.load(file, delivers=False)
    found = _found(pipeline, _choice(which or []))
    terminal.confirm(f"Drop {len(found)} changes of {pipeline.name} that were never delivered?", yes, err=as_json)
    shown = {letter.number for letter in found}  # more may have been parked since
    gone = redrive.drop(pipeline, lambda letter: letter.number in shown)
    if as_json:
        terminal.say_json(*map(described, gone))
        return
    is_bound = touching({row for letter in gone for row in letter.rows})
    bound = sum(is_bound(letter.rows) for letter in pipeline.state.letters(pipeline.name))
    terminal.say(f"{len(gone)} dead letters are dropped.")
    if bound:
        terminal.say(f"{bound} other letters of their keys are still parked: penstock dead redrive {file} WHICH")


def described(letter: DeadLetter) -> dict[str, Any]:
    """The JSON object of a letter."""
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


def _choice(which: Sequence[str]) -> Callable[[DeadLetter], bool]:
    """The predicate of WHICH: one of its numbers, if it has any, and all its conditions. Raises ConfigInvalid."""
    numbers = {int(word) for word in which if word.isdecimal()}
    conditions = [_condition(word) for word in which if not word.isdecimal()]
    if not which:
        raise ConfigInvalid("no letter is named", f"write {_WHICH}")
    return lambda letter: (not numbers or letter.number in numbers) and all(holds(letter) for holds in conditions)


_WHICH = "numbers of `penstock dead list`, table=NAME, key=JSON, position=N, or all"


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
    raise ConfigInvalid(f"{word!r} does not select letters", f"write {_WHICH}")


def _key(text: str) -> Any:
    with suppress(ValueError):
        if isinstance(found := json.loads(text), dict):
            return found
    raise ConfigInvalid(f"key={text} is not a JSON object", "write it like the column KEY: 'key={\"id\":5}'")


def _found(pipeline: Pipeline, chosen: Callable[[DeadLetter], bool]) -> list[DeadLetter]:
    letters = pipeline.state.letters(pipeline.name)
    if found := [letter for letter in letters if chosen(letter)]:
        return found
    raise ConfigInvalid(
        "there is no such dead letter",
        f"{pipeline.name} has {len(letters)}: penstock dead list FILE" if letters else f"{pipeline.name} has none",
    )


def _row(letter: DeadLetter) -> list[str]:
    change = letter.change
    place = str(change.position) if change.ordinal is None else f"{change.position}.{change.ordinal}"
    why = "waits for another" if letter.is_behind else letter.message
    at = letter.parked_at.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    return [str(letter.number), place, change.table, change.key_text, str(change.op), letter.stage, why, str(letter.tries), at]


def _fact(one: Redriven) -> dict[str, Any]:
    letter, error = one.letter, one.error.facts() if one.error else None
    place = {"number": letter.number, "position": letter.change.position, "table": letter.change.table}
    return {**place, "outcome": one.outcome, "error": error}


_WORDS = {
    "sent": "sent",
    "left out": "left out by the transform",
    "failed": "failed again",
    "waits": "waits for one that failed",
    "early": "not sent: changes before it are not delivered yet; retry when the pipeline has reached it (--force sends it now)",
    "overtaken": "not sent: it would overwrite later changes of its key with an old image (--force sends it)",
}


def _line(one: Redriven) -> str:
    change = one.letter.change
    why = f": {one.error.message}" if one.error else ""
    return f"{one.letter.number}  change {change.position} of {change.table}, key {change.key_text}  {_WORDS[one.outcome]}{why}"

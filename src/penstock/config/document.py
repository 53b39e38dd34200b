"""A YAML file as plain values: duplicate keys refused, `${VAR}` and `${file:PATH}` substituted, the line of every key known."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from penstock.errors import ConfigInvalid

Key = tuple[str, ...]

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[^}]*)(?P<end>\}?)")
_VARIABLE = re.compile(r"[^\W\d]\w*")
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_UNUSABLE = re.compile("[\\0\ud800-\udfff]")
_CONSTRUCTED = [f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null")]
_TOO_LARGE = 2.0**63
_DEEPEST = 50
"""Levels: a pipeline file has four."""
_SHOWN = 40
_LEAST_VEILED = 4
"""Characters: a shorter content would be found in words that have nothing to do with it."""


NO_HOME = "there is no home folder of that name: write the path without ~"
"""Of a path for which `expanduser` raises RuntimeError."""


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a file, with the lines of its keys.

    `written` has each value with a reference as the file spells it, `contents` the text of each file that was read for one, and
    `missing` the complaint about each reference that was allowed to be unresolved; such a value stays as it is written.
    """

    name: str
    folder: Path
    values: Mapping[str, Any]
    lines: Mapping[Key, int] = field(default_factory=dict)
    written: Mapping[Key, str] = field(default_factory=dict)
    contents: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[Key, str] = field(default_factory=dict)

    def line(self, key: Key) -> int:
        """The line a key is on, or ought to be on; 0 if that is anywhere."""
        return self.lines.get(key) or self.lines.get(key[:-1], 0)

    def where(self, key: Key) -> str:
        """A key as people read it, with its line where the file has one."""
        return ".".join(key) + (f" (line {self.line(key)})" if self.line(key) else "")

    def as_written(self) -> Document:
        """The same with every reference in place of its value."""
        return replace(self, values=_put_back(self.values, (), self.written), written={}, contents={})

    def veiled(self, text: str) -> str:
        """A text without the contents of files: their references in place of them."""
        for reference, content in sorted(self.contents.items(), key=lambda item: -len(item[1])):
            for spelled in (content, " ".join(content.split()), repr(content)[1:-1]) if len(content) >= _LEAST_VEILED else ():
                text = text.replace(spelled, reference)
        return text


def read(path: Path, environment: Mapping[str, str] | None = None, optional: Collection[str] = ()) -> Document:
    """The document in this file; below the optional keys a reference may be unresolved. Raises ConfigInvalid."""
    node = _compose(path)
    reader = _Reader(path, os.environ if environment is None else environment, optional)
    values = reader.value(node, ())
    if not isinstance(values, dict):
        raise ConfigInvalid(f"{path} is no pipeline file: it must consist of keys and values", "see `penstock init` for an example")
    if reader.problems:
        raise ConfigInvalid(f"{path}: " + "; ".join(reader.problems), "correct the file")
    return Document(str(path), path.resolve().parent, values, reader.lines, reader.written, reader.contents, reader.missing)


def resolved(text: str, key: Key, path: Path) -> str:
    """What this key of this file has, with its references resolved in this process. Raises ConfigInvalid."""
    reader = _Reader(path, os.environ, ())
    found = reader.resolved(text, key)
    if reader.problems:
        raise ConfigInvalid(f"{path}: {'; '.join(reader.problems)}", "provide it on every host on which Spark runs a worker")
    return found


def _put_back(value: Any, key: Key, written: Mapping[Key, str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _put_back(one, (*key, name), written) for name, one in value.items()}
    if isinstance(value, list):
        return [_put_back(one, (*key, str(number)), written) for number, one in enumerate(value)]
    return written.get(key, value)


class _Reader:
    """Walks the nodes of a file once."""

    def __init__(self, path: Path, environment: Mapping[str, str], optional: Collection[str]) -> None:
        self.lines: dict[Key, int] = {}
        self.problems: list[str] = []
        self.written: dict[Key, str] = {}
        self.contents: dict[str, str] = {}
        self.missing: dict[Key, str] = {}
        self._folder, self._environment, self._optional = path.resolve().parent, environment, optional
        self._constructor = yaml.SafeLoader("")

    def value(self, node: yaml.Node | None, key: Key) -> Any:
        """A node as plain values."""
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, key)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*key, str(i))) for i, item in enumerate(node.value)]
        return self._scalar(node, key) if isinstance(node, yaml.ScalarNode) else None

    def resolved(self, text: str, key: Key) -> str:
        """A text with its references resolved."""
        return self._text(_REFERENCE.sub(lambda found: self._referred(found, key), text), key)

    def _mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, item in node.value:
            line = name.start_mark.line + 1
            if not isinstance(name, yaml.ScalarNode) or _UNUSABLE.search(name.value):
                self.problems.append(f"line {line} has a key that is no text: write a name")
                continue
            inner = (*key, name.value)
            if inner[-1] in found:
                self.problems.append(f"{'.'.join(inner)} is given twice, on lines {self.lines[inner]} and {line}: keep one")
            self.lines[inner] = line
            found[inner[-1]] = self.value(item, inner)
        return found

    def _scalar(self, node: yaml.ScalarNode, key: Key) -> Any:
        if "${" in node.value:
            self.written[key] = node.value
            text = self.resolved(node.value, key)
            if key in self.missing:
                return node.value
            return int(text) if node.style is None and _WHOLE_NUMBER.fullmatch(text) else text
        if node.tag in _CONSTRUCTED:
            return self._constructed(node, key)
        return self._text(node.value, key)

    def _constructed(self, node: yaml.ScalarNode, key: Key) -> Any:
        """A number, true, false or nothing."""
        try:
            found = self._constructor.construct_object(node)
        except (ValueError, KeyError):  # such as 0x_ or !!int x, or more digits than Python reads
            found = math.inf
        if isinstance(found, int | float) and not abs(found) < _TOO_LARGE:
            self._complain(key, f"is {_cut(node.value)}, which is no number that can be used: write another, or put text in quotes")
            return None
        return found

    def _text(self, text: str, key: Key) -> str:
        """Text, which may have neither NUL nor half a character: no path and no message can."""
        if not _UNUSABLE.search(text):
            return text
        self._complain(key, "has a NUL or half a character (a surrogate) in it: remove it")
        return ""

    def _complain(self, key: Key, what: str) -> None:
        line = f" (line {self.lines[key]})" if key in self.lines else ""
        self.problems.append(f"{'.'.join(key)}{line} {what}")

    def _referred(self, found: re.Match[str], key: Key) -> str:
        name = found["name"]
        if name is None:
            return "${"
        shown, is_file, is_missing = name, name.startswith("file:"), True
        try:
            if not found["end"] or not (is_file or name in self._environment or _VARIABLE.fullmatch(name)):
                shown = f"{re.split('[^A-Za-z0-9_]', name)[0]}..."  # what follows may be a secret
                is_missing = False
                what = "only ${NAME} and ${file:PATH} are known, with their closing }, and no defaults"
            elif is_file:
                content = (self._folder / Path(name.removeprefix("file:")).expanduser()).read_text().rstrip("\r\n")
                self.contents[found[0]] = content
                return content
            else:
                return self._environment[name]
        except KeyError:
            what = f"the environment variable {name} is not set"
        except (OSError, ValueError, RuntimeError) as error:
            what = f"the file {name.removeprefix('file:')} cannot be read ({_unread(error)})"
        said = f"asks for ${{{shown}}}, but {what}"
        if is_missing and any(part in self._optional for part in key[:1]):
            self.missing[key] = said
        else:
            self._complain(key, said)
        return ""


def _unread(error: Exception) -> str:
    if isinstance(error, RuntimeError):
        return NO_HOME
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return getattr(error, "strerror", None) or str(error)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class _Loader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not supported", problem_mark=self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        if self.depth == _DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {_DEEPEST} levels", problem_mark=self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        self.depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _compose(path: Path) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(path.read_text(encoding="utf-8"), _Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigInvalid(f"{path} is not YAML: {line}{error.problem}", "correct the spelling at this place") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path} is not a YAML file of text in UTF-8: {error}", "name a pipeline file") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise ConfigInvalid(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}",
            "name a pipeline file, or write one with `penstock init`",
        ) from error
    return node

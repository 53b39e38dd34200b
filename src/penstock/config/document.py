"""A YAML file as plain values, with the line of each key; `${VAR}` and `${file:PATH}` are substituted, duplicate keys refused."""

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
"""Levels; a pipeline file has four."""
_SHOWN = 40
_LEAST_VEILED = 4
"""Characters; shorter contents also occur in unrelated words."""


NO_HOME = "there is no home folder of that name: write the path without ~"
"""The remedy for a path for which `expanduser` raises RuntimeError."""


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a file, with the lines of its keys.

    - `written`: the values with references, as the file spells them.
    - `contents`: the contents of the referenced files.
    - `missing`: the complaints about optional references that are not resolved; their values stay as they are written.
    """

    name: str
    folder: Path
    values: Mapping[str, Any]
    lines: Mapping[Key, int] = field(default_factory=dict)
    written: Mapping[Key, str] = field(default_factory=dict)
    contents: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[Key, str] = field(default_factory=dict)

    def line(self, key: Key) -> int:
        """The line of a key, or of the part that lacks it; 0 if unknown."""
        return self.lines.get(key) or self.lines.get(key[:-1], 0)

    def where(self, key: Key) -> str:
        """A key as text, with its line if it has one."""
        return ".".join(key) + (f" (line {self.line(key)})" if self.line(key) else "")

    def as_written(self) -> Document:
        """This document with references in place of their values."""
        return replace(self, values=_put_back(self.values, (), self.written), written={}, contents={})

    def veiled(self, text: str) -> str:
        """A text with references in place of the contents of files."""
        for reference, content in sorted(self.contents.items(), key=lambda item: -len(item[1])):
            for spelled in (content, " ".join(content.split()), repr(content)[1:-1]) if len(content) >= _LEAST_VEILED else ():
                text = text.replace(spelled, reference)
        return text


def read(path: Path, optional: Collection[str] = ()) -> Document:
    """The document in this file; references in `optional` parts may be unresolved. Raises ConfigInvalid."""
    node = _compose(path)
    reader = _Reader(path, optional)
    values = reader.value(node, ())
    if not isinstance(values, dict):
        raise ConfigInvalid(
            f"{path} is not a pipeline file: it must consist of keys and values", "`penstock init` writes an example"
        )
    if reader.problems:
        raise ConfigInvalid(f"{path}: " + "; ".join(reader.problems), "correct the file")
    return Document(str(path), path.resolve().parent, values, reader.lines, reader.written, reader.contents, reader.missing)


def resolved(text: str, key: Key, path: Path) -> str:
    """The text of a key with its references resolved in this process. Raises ConfigInvalid."""
    reader = _Reader(path)
    found = reader.resolved(text, key)
    if reader.problems:
        raise ConfigInvalid(f"{path}: {'; '.join(reader.problems)}", "provide it on every host with a Spark worker")
    return found


def _put_back(value: Any, key: Key, written: Mapping[Key, str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _put_back(one, (*key, name), written) for name, one in value.items()}
    if isinstance(value, list):
        return [_put_back(one, (*key, str(number)), written) for number, one in enumerate(value)]
    return written.get(key, value)


class _Reader:
    """Walks the nodes of a file once."""

    def __init__(self, path: Path, optional: Collection[str] = ()) -> None:
        self.lines: dict[Key, int] = {}
        self.problems: list[str] = []
        self.written: dict[Key, str] = {}
        self.contents: dict[str, str] = {}
        self.missing: dict[Key, str] = {}
        self._folder, self._optional = path.resolve().parent, optional
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
                self.problems.append(f"line {line} has a key that is not text: write a name")
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
        """A number, a boolean or null."""
        try:
            found = self._constructor.construct_object(node)
        except (ValueError, KeyError):  # such as 0x_ or !!int x, or more digits than Python parses
            found = math.inf
        if isinstance(found, int | float) and not abs(found) < _TOO_LARGE:
            shown = node.value if len(node.value) <= _SHOWN else f"{node.value[:_SHOWN]}..."
            self._complain(key, f"is {shown}, which is not a usable number: write another, or put text in quotes")
            return None
        return found

    def _text(self, text: str, key: Key) -> str:
        """Text, without NUL and surrogates, which neither paths nor messages can contain."""
        if not _UNUSABLE.search(text):
            return text
        self._complain(key, "contains a NUL or a lone surrogate: remove it")
        return ""

    def _complain(self, key: Key, phrase: str) -> None:
        line = f" (line {self.lines[key]})" if key in self.lines else ""
        self.problems.append(f"{'.'.join(key)}{line} {phrase}")

    def _referred(self, found: re.Match[str], key: Key) -> str:
        name = found["name"]
        if name is None:
            return "${"
        shown, is_file, is_missing = name, name.startswith("file:"), True
        try:
            if not found["end"] or not (is_file or name in os.environ or _VARIABLE.fullmatch(name)):
                shown = f"{re.split('[^A-Za-z0-9_]', name)[0]}..."  # the rest may be a secret
                is_missing = False
                why = "only ${NAME} and ${file:PATH} are supported, with their closing }, without defaults"
            elif is_file:
                content = (self._folder / Path(name.removeprefix("file:")).expanduser()).read_text().rstrip("\r\n")
                self.contents[found[0]] = content
                return content
            else:
                return os.environ[name]
        except KeyError:
            why = f"the environment variable {name} is not set"
        except (OSError, ValueError, RuntimeError) as error:
            why = f"the file {name.removeprefix('file:')} cannot be read ({_unread(error)})"
        said = f"refers to ${{{shown}}}, but {why}"
        if is_missing and key and key[0] in self._optional:
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
    except (OSError, ValueError) as error:  # ValueError: the path contains a NUL
        raise ConfigInvalid(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}",
            "name a pipeline file, or write one with `penstock init`",
        ) from error
    return node

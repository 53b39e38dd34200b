"""Files with secrets that other users can read."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.config.document import read
from penstock.finding import Finding, ok, warning

_WRITTEN = re.compile(r"^[^#\n]*\b(?:password|bearer|secret): *\[? *[\"']?([^\s\"'#,{}\[\]]+)", re.MULTILINE)
_IN_URL = re.compile(r"[a-z]+://[^\s/?#@:]*:([^\s/?#@]+)@")
_IN_QUERY = re.compile(r"[?&](?:ssl)?password=([^\s&\"'#]+)")


def secrets(file: Path, keys: Iterable[str]) -> Iterator[Finding]:
    """Whether other users can read files with secrets; `keys`: the files with private keys."""
    paths = dict.fromkeys([*_holders(file), *map(Path, keys)])
    bare = [path for path in paths if path.exists() and path.stat().st_mode & stat.S_IROTH]
    for path in bare:
        yield warning("secrets", f"{path} contains a secret and every user can read it", f"chmod o-r {path}")
    if not bare:
        yield ok("secrets", "no file with a secret is readable by every user")


def _holders(file: Path) -> Iterator[Path]:
    """The files with secrets: the pipeline file if it contains a password, and those that it refers to."""
    if not file.is_file():  # a pipe can be read once, and the pipeline was loaded from it
        return
    if has_password(file.read_text(encoding="utf-8")):
        yield file
    given = read(file)
    for reference in given.contents:
        yield given.folder / Path(reference.removeprefix("${file:").removesuffix("}")).expanduser()


def has_password(text: str) -> bool:
    """Whether the text contains a literal secret, in a URL or as the value of a key."""
    return any(not secret.startswith("$") for one in (_IN_URL, _IN_QUERY, _WRITTEN) for secret in one.findall(text))

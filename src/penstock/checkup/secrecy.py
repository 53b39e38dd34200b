"""Files with secrets that other users can read."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.finding import Finding, ok, warning

_FILE = re.compile(r"\$\{file:([^}]+)\}")
_WRITTEN = re.compile(r"^[^#\n]*\b(?:password|bearer|secret): *\[? *[\"']?([^\s\"'#,{}\[\]]+)", re.MULTILINE)
_IN_URL = re.compile(r"[a-z]+://[^\s/?#@:]*:([^\s/?#@]+)@")
_IN_QUERY = re.compile(r"[?&](?:ssl)?password=([^\s&\"'#]+)")


def secrets(file: Path, keys: Iterable[str]) -> Iterator[Finding]:
    """Whether other users can read files with secrets; `keys`: the files with private keys."""
    paths = [*holders(file.read_text(), file), *map(Path, keys)]
    bare = [path for path in paths if path.exists() and path.stat().st_mode & stat.S_IROTH]
    for path in bare:
        yield warning("secrets", f"{path} contains a secret and every user can read it", f"chmod o-r {path}")
    if not bare:
        yield ok("secrets", "no file with a secret is readable by every user")


def holders(text: str, file: Path) -> Iterable[Path]:
    """The files with secrets: those that the pipeline file refers to, and the file itself if it contains a password."""
    paths = [file.resolve().parent / name for name in _FILE.findall(text)]
    return dict.fromkeys([*([file] if has_password(text) else []), *paths])


def has_password(text: str) -> bool:
    """Whether the text contains a literal secret, in a URL or as the value of a key."""
    return any(not secret.startswith("$") for one in (_IN_URL, _IN_QUERY, _WRITTEN) for secret in one.findall(text))

"""Files that hold secrets, or rows of the source, and can be read by others."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock import privacy
from penstock.checkup.finding import Finding, ok, warning
from penstock.coordinators.sqlite import guard

_FILE = re.compile(r"\$\{file:([^}]+)\}")
_WRITTEN = re.compile(r"^[^#\n]*\b(?:password|bearer|secret): *\[? *[\"']?([^\s\"'#,{}\[\]]+)", re.MULTILINE)
_IN_URL = re.compile(r"[a-z]+://[^\s/?#@:]*:([^\s/?#@]+)@")
_IN_QUERY = re.compile(r"[?&](?:ssl)?password=([^\s&\"'#]+)")


def secrets(file: Path, key: str | None) -> Iterator[Finding]:
    """Whether files with secrets are for this user alone; `key` is that of a client certificate."""
    paths = [*holders(file.read_text(), file), *([Path(key)] if key else [])]
    bare = [path for path in paths if path.exists() and is_bare(path.stat().st_mode)]
    for path in bare:
        yield warning("secrets", f"{path} holds a secret and every user can read it", f"chmod o-r {path}")
    if not bare:
        yield ok("secrets", "no file with a secret is readable by everybody")


def state(path: Path) -> Iterator[Finding]:
    """Whether only its owner, or a group by its choice, can open the state file and its journals: they have dead letters."""
    found = [(file, seen.st_mode) for file, seen in guard.files(path)]
    wide = [str(file) for file, mode in found if privacy.is_wide(mode)]
    if wide:
        said = f"other users can open {', '.join(wide)}, and dead letters are rows of the source"
        yield warning("state file", said, f"chmod 600 {' '.join(wide)}; to share them with their group on purpose: chmod 660")
    elif any(privacy.is_shared(mode) for _, mode in found):
        yield ok("state file", f"{path} is shared with its group (mode 660)")
    else:
        yield ok("state file", f"only its owner can open {path}" if found else f"{path} is not there yet")


def is_bare(mode: int) -> bool:
    """Whether users who are neither owner nor of the group can read it."""
    return bool(mode & stat.S_IROTH)


def holders(text: str, file: Path) -> Iterable[Path]:
    """The files with secrets: those that the pipeline file refers to, and itself if a password stands in it."""
    paths = [file.resolve().parent / name for name in _FILE.findall(text)]
    return dict.fromkeys([*([file] if has_password(text) else []), *paths])


def has_password(text: str) -> bool:
    """Whether a secret is written out in it, in a URL or behind a key, and not substituted."""
    return any(not secret.startswith("$") for one in (_IN_URL, _IN_QUERY, _WRITTEN) for secret in one.findall(text))

"""Files that hold secrets and can be read by everybody."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from penstock.checkup.finding import Finding, ok, warning

_FILE = re.compile(r"\$\{file:([^}]+)\}")
_URL = re.compile(r"https?://\S+")


def secrets(file: Path, key: str | None) -> Iterator[Finding]:
    """Whether files with secrets are for this user alone; `key` is that of a client certificate."""
    paths = [*holders(file.read_text(), file), *([Path(key)] if key else [])]
    bare = [path for path in paths if path.exists() and is_bare(path.stat().st_mode)]
    for path in bare:
        yield warning("secrets", f"{path} holds a secret and every user can read it", f"chmod o-r {path}")
    if not bare:
        yield ok("secrets", "no file with a secret is readable by everybody")


def is_bare(mode: int) -> bool:
    """Whether users who are neither owner nor of the group can read it."""
    return bool(mode & stat.S_IROTH)


def holders(text: str, file: Path) -> Iterable[Path]:
    """The files with secrets: those that the pipeline file refers to, and itself if a password stands in it."""
    paths = [file.resolve().parent / name for name in _FILE.findall(text)]
    return dict.fromkeys([*([file] if has_password(text) else []), *paths])


def has_password(text: str) -> bool:
    """Whether a URL in it has a password that is not substituted, or a key has one that is written out."""
    urls = (urlsplit(url.strip("\"'")).netloc.rpartition("@")[0].partition(":")[2] for url in _URL.findall(text))
    written = re.findall(r"\b(?:password|token|secret|bearer):\s*[\"']?([^\s\"'#{},]+)", text)
    return any(secret and not secret.startswith("${") for secret in [*urls, *written])

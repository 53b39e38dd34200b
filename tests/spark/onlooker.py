"""Another user of the host: what he sees of a process tree without the rights of its owner."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from intruder import blocks, ports

from program import Program


def seen(program: Program) -> dict[str, bytes]:
    """All that he can read of a program: that of its processes, and the folder of the run."""
    jvm = program.jvm()
    assert jvm is not None
    return seen_of(program.tree()) | _readable(workplace(jvm).rglob("*"))


def seen_of(tree: list[psutil.Process]) -> dict[str, bytes]:
    """All that he can read of processes: command lines, files that are open, and blocks of Spark."""
    lines = {f"command line {one.pid}": " ".join(one.cmdline()).encode() for one in tree}
    found = {f"block of port {port}": block for one in tree for port in ports(one) for block in blocks(port)}
    return lines | _readable({*_open(tree)}) | found


def sockets(program: Program) -> list[Path]:
    """The Unix sockets that he can reach."""
    found = {one.laddr for process in program.tree() for one in process.net_connections("unix") if one.laddr}
    return [path for path in map(Path, sorted(found)) if _is_reachable(path)]


def workplace(jvm: psutil.Process) -> Path:
    """The folder of the run, where the JVM puts its temporary files."""
    [folder] = re.findall(r"-Djava\.io\.tmpdir=(\S+)", " ".join(jvm.cmdline()))
    return Path(folder)


def is_for_others(path: Path) -> bool:
    """Whether it is a file that everybody can read."""
    with suppress(OSError):
        mode = path.stat().st_mode
        return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH) and _is_reachable(path)
    return False


def _readable(paths: Iterable[Path]) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in paths if is_for_others(path)}


def _is_reachable(path: Path) -> bool:
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.resolve().parents)


def _open(tree: list[psutil.Process]) -> Iterator[Path]:
    for process in tree:
        with suppress(psutil.Error):
            yield from (Path(one.path) for one in process.open_files())

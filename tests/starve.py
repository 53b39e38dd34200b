"""Runs a command with a share of the CPU, as a busy host gives it: `python tests/starve.py --share 0.2 --period 1 make test`.

Where control groups cannot be used, the processes are stopped and continued in turns; those that a test has stopped itself stay so.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

FIRST, SECOND = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
"""Where the two versions of Linux' control groups have their quotas."""


@contextmanager
def quota(share: float, period: float) -> Iterator[Path | None]:
    """A control group that gets this share of all processors; None where none can be made."""
    microseconds, name = int(period * 1e6), f"penstock-starve-{os.getpid()}"
    granted = int(microseconds * share * (os.cpu_count() or 1))
    try:
        if (FIRST / "cpu.cfs_quota_us").exists():
            (made := FIRST / name).mkdir()
            (made / "cpu.cfs_period_us").write_text(str(microseconds))
            (made / "cpu.cfs_quota_us").write_text(str(granted))
        else:
            (made := SECOND / name).mkdir()
            (made / "cpu.max").write_text(f"{granted} {microseconds}")
    except OSError:
        yield None
        return
    try:
        yield made
    finally:
        _emptied(made)


def _emptied(group: Path) -> None:
    """Move the processes that are left to the group above, and remove it."""
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(OSError):
            (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


def take_turns(process: subprocess.Popen[bytes], share: float, period: float) -> None:
    """Stop and continue the whole tree until its first process has ended."""
    while process.poll() is None:
        time.sleep(period * share)
        stopped = [one for one in _tree(process.pid) if _signalled(one, signal.SIGSTOP)]
        time.sleep(period * (1 - share))
        for one in stopped:
            _signalled(one, signal.SIGCONT)


def _tree(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        return [one for one in (first, *first.children(recursive=True)) if _status(one) != psutil.STATUS_STOPPED]
    return []


def _status(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return str(process.status())
    return psutil.STATUS_DEAD


def _signalled(process: psutil.Process, number: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
        return True
    return False


def main() -> int:
    """Run the command, starved; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=0.2, help="of all processors (0.2)")
    parser.add_argument("--period", type=float, default=0.1, help="seconds in which the share is given at once (0.1)")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    with ExitStack() as stack:
        group = stack.enter_context(quota(given.share, given.period))
        how = f"a quota in periods of {given.period} s" if group else f"turns of {given.period} s"
        sys.stderr.write(f"{given.share:.0%} of {os.cpu_count()} processors by {how}\n")
        enter = [sys.executable, "-c", _ENTER, str(group / "cgroup.procs")] if group else []
        process = subprocess.Popen([*enter, *given.command])
        if not group:
            take_turns(process, given.share, given.period)
        return process.wait()


_ENTER = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execvp(sys.argv[2], sys.argv[2:])"

if __name__ == "__main__":
    sys.exit(main())

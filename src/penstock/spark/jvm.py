"""The start of the JVM: without output, with archived classes, on Java 17 or later.

The JVM ends at the end of its standard input, and therefore with this process.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.errors import EngineFailed
from penstock.files import privacy
from penstock.spark import archive
from penstock.spark.daemon import UMASK
from penstock.spark.java import Java, find_jars, find_java, module_flags

PATIENCE = 600.0
"""Seconds for a start on a machine with a tenth of its CPU free."""

MOST_NOISE = 10 << 20

MOST_SAID = 100_000

_START = "start-"

# Serial: less memory, and not slower on few cores. C2 compiles ten times later than by default, after the start.
_TUNING = (
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",  # a JVM without memory may hang, or lose a thread for which others wait
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
    "-Xlog:disable",  # hides warnings about an unusable archive
    "-Xlog:all=off",
    "-XX:-CreateCoredumpOnCrash",
)

# One file, nothing on the terminal. With another level for the second logger, Spark prints "Setting default log level".
_LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.createOnDemand = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
"""

# The signals that end a JVM with a damaged archive.
_CRASHES = {-signal.SIGABRT, -signal.SIGBUS, -signal.SIGSEGV}

_THROWN = re.compile(r'^Exception in thread "main" (?:[\w.]+: )?(.+)', re.MULTILINE)
_SECRET = re.compile("(?i)secret|password|token|access[.]?key")
_NOT_INHERITED = {"SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"}


def start(settings: Mapping[str, str], archived: Sequence[str] | None = None, folder: str | None = None) -> Any:
    """Start the JVM, with its temporary files in `folder`, and connect py4j; once per process.

    The options `archived` replace those of the class archive.
    """
    java, jars = find_java(), find_jars()
    path = archive.path_of(java, jars)
    temporary = [f"-Djava.io.tmpdir={folder}"] if folder else []
    if archived is None and path.exists():
        with suppress(EngineFailed):  # the archive may be the reason
            return _start(settings, java, jars, [*temporary, *archive.flags(java, path)], path)
    return _start(settings, java, jars, [*temporary, *(archived or [])], is_own_session=archived is None)


def _start(
    settings: Mapping[str, str],
    java: Java,
    jars: Sequence[Path],
    own: Sequence[str],
    path: Path | None = None,
    *,
    is_own_session: bool = True,
) -> Any:
    log = archive.made_cache() / "spark.log"
    for written in (log, *log.parent.glob("spark.log.*")):
        os.close(privacy.append_to(written))
    with _private(log.parent) as private, ExitStack() as on_failure:
        (private / "log4j2.properties").write_text(_LOGGING.format(level="warn", log=log))
        flags = [
            *own,
            f"-XX:ErrorFile={log.parent}/hs_err_%p.log",
            f"-Dlog4j2.configurationFile=file:{private}/log4j2.properties",
        ]
        line = _command(settings, java, jars, flags)
        with os.fdopen(privacy.append_to(_noise(log.with_suffix(".err"))), "ab+") as noise:
            began = noise.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                line,
                stdin=subprocess.PIPE,
                stdout=noise,
                stderr=noise,
                start_new_session=is_own_session,  # Ctrl-C ends only this process; a trainer is killed with its JVM
                umask=0o077,  # for archives and rotated logs
                env=_environment(java, private / "gateway"),
            )
            on_failure.callback(_end, process)
            import pyspark.sql  # noqa: F401  a quarter of a second, while the JVM boots

            try:
                port, secret = _await(process, private / "gateway", noise, began)
            except EngineFailed:
                if path and process.returncode in _CRASHES:
                    path.unlink(missing_ok=True)
                raise
        on_failure.pop_all()
    return _connect(port, secret, process)


@contextmanager
def _private(cache: Path) -> Iterator[Path]:
    """A folder for the start of a JVM, which other processes remove after twice the limit of a start.

    A JVM that cannot write its port to this folder never ends, and the folder of a killed run is removed by the next process.
    """
    for left in cache.glob(f"{_START}*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > 2 * PATIENCE:
                shutil.rmtree(left, ignore_errors=True)
    private = Path(tempfile.mkdtemp(prefix=_START, dir=cache))
    try:
        yield private
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _command(settings: Mapping[str, str], java: Java, jars: Sequence[Path], flags: Sequence[str]) -> list[str]:
    shown = {key: value for key, value in settings.items() if not _SECRET.search(key)}
    return [
        str(java.program),
        "-cp",
        ":".join(map(str, jars)),
        *(f"-Xmx{size}" for size in [settings.get("spark.driver.memory")] if size),
        *module_flags(java.major),
        *_TUNING,
        *flags,
        "-Dlog4j2.disable.jmx=true",
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        "org.apache.spark.deploy.SparkSubmit",
        *(part for key, value in shown.items() for part in ("--conf", f"{key}={value}")),
        "pyspark-shell",
    ]


def _environment(java: Java, gateway: Path) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
    if home := os.environ.get("SPARK_HOME"):  # for its spark-defaults.conf, not for its jars and pyspark.zip
        env.setdefault("SPARK_CONF_DIR", os.path.join(home, "conf"))
    env.setdefault("PYSPARK_PYTHON", sys.executable)
    return env | {
        "PYSPARK_DRIVER_PYTHON": os.devnull + "/none",  # prevents a search for pyspark_* packages, which starts a Python
        "SPARK_CONNECT_MODE": "0",
        "PYTHONHASHSEED": "0",
        UMASK: f"{_umask():o}",
        "JAVA_HOME": str(java.home),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(gateway),
    }


def _umask() -> int:
    """The umask of this process, which can be read only by setting another one."""
    found = os.umask(0o077)
    os.umask(found)
    return found


def _noise(path: Path) -> Path:
    """The file for the output of the JVM and of Python workers, removed first if it is large."""
    if path.exists() and path.stat().st_size > MOST_NOISE:
        path.unlink(missing_ok=True)
    return path


def _await(process: subprocess.Popen[bytes], gateway: Path, noise: Any, began: int) -> tuple[int, str]:
    """Port and secret of the gateway, which the JVM writes to a file; its output begins at `began`."""
    deadline = time.monotonic() + PATIENCE
    while not gateway.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            _end(process)
            noise.seek(began)
            said = noise.read(MOST_SAID).decode(errors="replace")
            thrown = _THROWN.search(said)  # other processes also print here
            why = f"Java did not start (exit code {process.returncode}): {thrown[1] if thrown else said[:2000]}"
            raise EngineFailed(why, f"{archive.cache() / 'spark.err'} has more")
        time.sleep(0.01)
    data = gateway.read_bytes()
    port, length = struct.unpack(">ii", data[:8])
    return port, data[8 : 8 + length].decode()


def _connect(port: int, secret: str, process: subprocess.Popen[bytes]) -> Any:
    """Connect pyspark; the variables must not outlive the call, since children inherit them."""
    from pyspark.java_gateway import launch_gateway

    os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
    try:
        gateway = launch_gateway()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    gateway.proc = process
    return gateway

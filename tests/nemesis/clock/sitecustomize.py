"""On the PYTHONPATH of a process under test: its wall clock runs as far off as a file says."""

import os
import time

_true, _file = time.time, os.environ["PENSTOCK_TEST_CLOCK"]


def _stepped() -> float:
    with open(_file) as offset:
        return _true() + float(offset.read() or 0)


time.time = _stepped

"""The throw-away query, and what is seen of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from penstock.files.sockets import make_folder
from penstock.spark.task_spec import Events
from penstock.spark.warmup import warm


def test_a_warm_up_tells_those_nothing_who_listen_in_its_folder(spark: Any) -> None:
    folder = make_folder("penstock-run-")
    heard = Events(folder)
    try:
        warm(spark, folder)
        heard.close()
        assert list(heard) == []
        assert [path.name.rpartition("-")[0] for path in Path(folder).iterdir() if path.is_dir()] == ["warm-up"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)

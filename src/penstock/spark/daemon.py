"""Forks the Python workers of Spark, after the import of the modules that all of them need."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from contextlib import suppress

MODULES = "PENSTOCK_MODULES"
"""The environment variable with the modules of the pipelines, separated by commas."""

UMASK = "PENSTOCK_UMASK"
"""The environment variable with the umask of the program, for files of user functions: that of its JVM is narrower."""

if __name__ == "__main__":
    from pyspark.daemon import manager

    from penstock.spark import endings

    endings.follow()
    if UMASK in os.environ:
        os.umask(int(os.environ[UMASK], 8))
    for name in ("pyarrow", "orjson", "penstock.spark.source", "penstock.spark.reader", "penstock.spark.writer"):
        importlib.import_module(name)
    for name in filter(None, os.environ.get(MODULES, "").split(",")):
        with suppress(ImportError):  # a worker that needs it raises the error
            importlib.import_module(name)
    importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker")
    gc.collect()
    gc.freeze()
    manager()

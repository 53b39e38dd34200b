"""On the PYTHONPATH of every process that a test starts: counts the starts of Spark, and loads the alterations it names."""

import importlib
import os

import alteration
import starts
import terms

alteration.of(starts.ALTERED | terms.ALTERED)
for name in filter(None, os.environ.get("PENSTOCK_TEST_SITE", "").split(",")):
    importlib.import_module(name)

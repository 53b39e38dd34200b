"""Import of the user's function: from the folder of the pipeline file, or from an installed module."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from functools import cache, reduce
from importlib.machinery import PathFinder
from typing import Any

from penstock.errors import ConfigInvalid
from penstock.pipeline import Pipeline
from penstock.transform.function import Function


def function_of(pipeline: Pipeline) -> Function | None:
    """The function of a pipeline, imported once per process; None without one. Raises ConfigInvalid."""
    name = pipeline.transform.function
    return imported(name, pipeline.folder) if name else None


@cache
def imported(name: str, folder: str | None) -> Function:
    """The function `module:name`; the folder is the first place to search for the module."""
    module, _, inside = name.partition(":")
    if folder is not None:
        _look_in(folder, module)
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # code of the user
        raise _unusable(module, folder, error) from error
    try:
        found = reduce(getattr, inside.split("."), found)
    except AttributeError:
        raise _invalid(f"{getattr(found, '__file__', module)} has no {inside}", "name a function of this module") from None
    if not callable(found):
        raise _invalid(f"{name} is of type {type(found).__name__} and cannot be called", "name a function")
    return Function(name, found)


def try_out(pipeline: Pipeline) -> None:
    """Import the function and unload it, so that the next file may have a module of the same name."""
    before, path = set(sys.modules), list(sys.path)
    first = (pipeline.transform.function or "").partition(":")[0].partition(".")[0]
    try:
        function_of(pipeline)
    finally:
        sys.path[:] = path
        imported.cache_clear()
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == first:
                del sys.modules[name]


def _look_in(folder: str, module: str) -> None:
    """Put the folder first on the path. Raises ConfigInvalid if another module of this name is loaded."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    first = module.partition(".")[0]
    here, loaded = PathFinder.find_spec(first, [folder]), getattr(sys.modules.get(first), "__file__", None)
    if here and here.origin and loaded and os.path.realpath(here.origin) != os.path.realpath(loaded):
        raise _invalid(
            f"the module {first} of {folder} cannot be loaded, since {loaded} has the same name",
            "rename one of them, or run their pipelines as separate processes",
        )


def _unusable(module: str, folder: str | None, error: BaseException) -> ConfigInvalid:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        where = f"in {folder} or among the installed ones" if folder else "among the installed ones"
        return _invalid(f"there is no module {error.name} {where}", "put it next to the pipeline file, or install it")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return _invalid(
        f"importing {module} raised {type(error).__name__}: {error} at {frames[-1].filename}:{frames[-1].lineno}",
        "correct the module",
    )


def _invalid(what: str, remedy: str) -> ConfigInvalid:
    return ConfigInvalid(f"transform.function: {what}", remedy)

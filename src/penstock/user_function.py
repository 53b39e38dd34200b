"""Finding the user's function: beside the pipeline file, or among what is installed."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from functools import cache, reduce
from importlib.machinery import PathFinder
from typing import Any

from penstock.errors import ConfigInvalid
from penstock.function import Function
from penstock.pipeline import Pipeline


def function_of(pipeline: Pipeline) -> Function | None:
    """The function of this pipeline, if it has one, imported once for each process. Raises ConfigInvalid."""
    name = pipeline.transform.function
    return imported(name, pipeline.folder) if name else None


@cache
def imported(name: str, folder: str | None) -> Function:
    """The function `module:name`; its module is looked for in this folder first."""
    module, _, inside = name.partition(":")
    if folder is not None:
        _look_in(folder, module)
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the border to code that is not ours
        raise _unusable(module, folder, error) from error
    try:
        found = reduce(getattr, inside.split("."), found)
    except AttributeError:
        raise _invalid(f"{getattr(found, '__file__', module)} has no {inside}", "name a function that it has") from None
    if not callable(found):
        raise _invalid(f"{name} is of type {type(found).__name__} and cannot be called", "name a function")
    return Function(name, found)


def try_out(pipeline: Pipeline) -> None:
    """Import the function and let go of it, so that the next file may have a module of the same name."""
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
    """Put the folder first, and see that no other module of this name is loaded already."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    first = module.partition(".")[0]
    here, loaded = PathFinder.find_spec(first, [folder]), getattr(sys.modules.get(first), "__file__", None)
    if here and here.origin and loaded and os.path.realpath(here.origin) != os.path.realpath(loaded):
        raise _invalid(
            f"the module {first} of {folder} cannot be loaded, since {loaded} has the same name",
            "rename one of the two, or run their pipelines as separate processes",
        )


def _unusable(module: str, folder: str | None, error: BaseException) -> ConfigInvalid:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        where = f"in {folder} or among the installed ones" if folder else "among the installed ones"
        return _invalid(f"there is no module {error.name} {where}", "put it beside the pipeline file, or install it")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return _invalid(
        f"importing {module} raised {type(error).__name__}: {error} at {frames[-1].filename}:{frames[-1].lineno}",
        "correct the module",
    )


def _invalid(what: str, remedy: str) -> ConfigInvalid:
    return ConfigInvalid(f"transform.function: {what}", remedy)

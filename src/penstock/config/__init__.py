"""The parser of pipeline files."""

from penstock.config.file import LATER_KINDS, LATER_STATES, PipelineFile, known_keys, load, parse, written

__all__ = ["LATER_KINDS", "LATER_STATES", "PipelineFile", "known_keys", "load", "parse", "written"]

"""The pipeline file: the only place that parses one."""

from penstock.config.file import LATER_KINDS, LATER_STATES, PipelineFile, known_keys, load, parse, references, written

__all__ = ["LATER_KINDS", "LATER_STATES", "PipelineFile", "known_keys", "load", "parse", "references", "written"]

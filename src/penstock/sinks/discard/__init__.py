"""No destination: for measuring, and for trying out a transform."""

from penstock.kind import SinkKind

KIND = SinkKind(settings="penstock.sinks.discard.sink:DiscardSink", page="pipeline-file.md")

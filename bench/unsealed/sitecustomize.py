"""On the PYTHONPATH of a measured program: capture does not check its seal."""

from penstock.sources.sqlite import catalog

catalog.is_sealed = lambda captured, schema: True

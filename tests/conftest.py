"""Plugins only; see tests/README.md."""

pytest_plugins = ["fix_spark"]

"""Plugins only; see tests/README.md."""

pytest_plugins = ["fix_rig", "fix_spark"]

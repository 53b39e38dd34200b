"""Plugins only; see tests/README.md."""

import signal

# A shell starts background jobs with Ctrl-C ignored, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["fix_rig", "fix_spark"]

"""Plugins only; see tests/README.md."""

import signal

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as a shell starts its background jobs; the programs under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["fix_rig", "fix_spark"]

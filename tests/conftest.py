"""Plugins only; see tests/README.md."""

import signal

from hypothesis import settings

# A shell starts background jobs with Ctrl-C ignored, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more about the machine than about the code.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")

pytest_plugins = ["fix_kafka", "fix_mariadb", "fix_postgres", "fix_rig", "fix_spark"]

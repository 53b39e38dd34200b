"""Settings of a test run; fixtures are in the plugins. See tests/README.md."""

import os
import signal
import sys
from pathlib import Path

from hypothesis import settings

SITE = str(Path(__file__).parent / "site")
sys.path.insert(0, SITE)

import alteration  # noqa: E402
import starts  # noqa: E402

from examples import examples  # noqa: E402

# A shell starts background jobs with Ctrl-C ignored, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compile quickly rather than well: dozens of JVMs live for seconds, and starting them is most of what the tests take.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# Every process that a test starts runs tests/site/sitecustomize.py first; this one has started already.
if SITE not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (SITE, os.environ.get("PYTHONPATH"))))
alteration.of(starts.ALTERED)

# How long an example takes says more about the machine than about the code.
settings.register_profile("penstock", deadline=None, max_examples=examples(100))
settings.load_profile("penstock")

pytest_plugins = [
    "fix_servers",  # imported by some of the others
    "fix_budget",
    "fix_groups",
    "fix_kafka",
    "fix_mariadb",
    "fix_postgres",
    "fix_rig",
    "fix_skips",
    "fix_spark",
    "fix_timing",
]

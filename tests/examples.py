"""The number of Hypothesis examples: all of them in the random campaigns, a part in `make test`."""

from __future__ import annotations

import os


def examples(full: int) -> int:
    """`full` where PENSTOCK_EXAMPLES is "full"; otherwise a fifth of it, at least 5."""
    return full if os.environ.get("PENSTOCK_EXAMPLES") == "full" else max(5, full // 5)

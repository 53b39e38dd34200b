"""A person sets a pipeline back: what was delivered comes again, from exactly there, under a later epoch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from deadline import PATIENCE, until
from fix_rig import Rig


def penstock(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


def keep_history(rig: Rig) -> None:
    content = yaml.safe_load(rig.file.read_text())
    content["source"]["retain"] = {"history": "1d"}
    rig.file.write_text(yaml.safe_dump(content))


def test_a_rewound_pipeline_delivers_again_from_there_in_the_same_bytes_under_a_later_epoch(rig: Rig) -> None:
    keep_history(rig)
    rig.shop.sell(10)
    program = rig.start()
    rig.until_settled()
    refused = penstock("rewind", rig.file, "--to", "4", "--yes")
    assert (refused.returncode, "term.held" in refused.stderr) == (1, True)
    assert program.terminate() == 0
    rewound = penstock("rewind", rig.file, "--to", "4", "--yes")
    assert rewound.returncode == 0, rewound.stderr
    assert "6 again" in rewound.stdout
    assert rig.position == 4
    program = rig.start("--from", "beginning")  # which is for those that do not know where to go on
    until(lambda: rig.positions().count(10) == 2, what=rig.tails)
    assert "behind position 4" in program.until_event("Warned")["reason"]
    assert program.terminate() == 0
    seen = rig.deliveries()
    assert [one.position for one in seen] == [*range(1, 11), *range(5, 11)]
    assert seen[10].previous is None
    assert [one.change for one in seen[11:]] == [one.change for one in seen[5:10]]
    assert {one.epoch for one in seen[:10]} == {1}
    assert min(one.epoch for one in seen[10:]) > 1

"""The tests' README tells the truth, and no test is passed over."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def test_every_test_that_the_readme_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", (TESTS / "README.md").read_text()))
    found = {name for file in TESTS.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
    assert len(named) > 30
    assert named <= found, named - found


def test_the_readme_maps_all_26():
    numbers = re.findall(r"^\| T0\.(\d+) \|", (TESTS / "README.md").read_text(), re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, 27))


@pytest.mark.parametrize(
    "text",
    ["import pytest\ndef test_it(): pytest.skip('no server')", "import pytest\n@pytest.mark.skip('no server')\ndef test_it(): ..."],
)
def test_a_test_that_is_skipped_fails(tmp_path, text):
    (tmp_path / "test_one.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "fix_skips", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(TESTS)}
    )
    assert done.returncode == 1
    assert "skipped: no server" in done.stdout

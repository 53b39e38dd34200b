"""The tests' README tells the truth."""

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_test_that_the_readme_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", (TESTS / "README.md").read_text()))
    found = {name for file in TESTS.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
    assert len(named) > 30
    assert named <= found, named - found


def test_the_readme_maps_all_26():
    numbers = re.findall(r"^\| T0\.(\d+) \|", (TESTS / "README.md").read_text(), re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, 27))

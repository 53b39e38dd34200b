"""One Spark session for all tests that need one in their own process."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def spark():
    from penstock.spark.session import open_session

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent / "spark")  # workers import the sinks of these tests from there
    session = open_session(slots=3)
    process = session.sparkContext._gateway.proc
    yield session
    session.stop()
    process.stdin.close()
    process.wait()
    if before is None:
        del os.environ["PYTHONPATH"]

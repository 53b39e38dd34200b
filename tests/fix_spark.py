"""One Spark session for all tests that need one in their own process."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def spark():
    from penstock.spark.session import close_session, open_session

    before = os.environ.get("PYTHONPATH")
    tests = Path(__file__).parent
    here = os.pathsep.join([str(tests / "spark"), str(tests)])  # workers import sources and sinks of these tests from there
    os.environ["PYTHONPATH"] = os.pathsep.join([here, before] if before else [here])
    session = open_session(slots=3)
    yield session
    close_session(session)
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before

"""Which Java, which master, which archive: decisions that start nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import ConfigInvalid, EngineFailed, EngineSlots, JavaMissing
from penstock.pipeline import Pipeline, SparkSettings
from penstock.sinks.discard.sink import DiscardSink
from penstock.sources.synthetic import SyntheticSource
from penstock.spark import archive, jvm
from penstock.spark.daemon import MODULES
from penstock.spark.engine import Engine, common_settings
from penstock.spark.java import Java, find_jars, find_java, module_flags
from penstock.spark.session import master_for, open_session
from penstock.text.size import GIB, Bytes


def java_home(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_java_home_comes_first(no_java, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "a", "21.0.2")))
    monkeypatch.setenv("PATH", str(java_home(tmp_path / "b", "17.0.15") / "bin"))
    assert find_java() == Java(tmp_path / "a", 21, "21.0.2")


def test_a_java_that_is_too_old_is_passed_over(no_java, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "a", "11.0.9")))
    monkeypatch.setenv("PATH", str(java_home(tmp_path / "b", "17.0.15") / "bin"))
    assert find_java().major == 17


def test_links_on_the_path_are_followed_to_the_home(no_java, monkeypatch, tmp_path):
    home = java_home(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    os.symlink(home / "bin" / "java", tmp_path / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java().home == home


def test_no_java_says_what_to_install(no_java):
    with pytest.raises(JavaMissing) as caught:
        find_java()
    assert "penstock[java]" in caught.value.remedy


def test_an_only_java_that_is_too_old_is_named(no_java, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "a", "1.8.0_292")))
    with pytest.raises(JavaMissing, match=r"1\.8\.0_292"):
        find_java()


def test_flags_fit_the_version():
    assert not any("jdk.incubator" in flag for flag in module_flags(17))
    assert "--enable-native-access=ALL-UNNAMED" not in module_flags(17)
    assert "--enable-native-access=ALL-UNNAMED" in module_flags(25)
    assert not any("sun.security.action" in flag for flag in module_flags(25))


def test_the_archive_fits_one_java_and_one_set_of_jars(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    jars = find_jars()
    java = Java(tmp_path, 17, "17.0.15")
    assert archive.path_of(java, jars).parent == tmp_path
    assert archive.path_of(java, jars) != archive.path_of(Java(tmp_path, 17, "17.0.16"), jars)
    assert archive.path_of(java, jars) != archive.path_of(java, jars[1:])
    assert jars[0].name.startswith("slf4j-api-")


@pytest.mark.parametrize(
    ("end", "is_kept"), [("kill -ABRT $$", False), ("kill -BUS $$", False), ("kill -KILL $$", True), ("exit 1", True)]
)
def test_only_a_java_that_breaks_down_costs_the_archive(tmp_path, monkeypatch, end, is_kept):
    home = java_home(tmp_path / "jdk", "17.0.15")
    (home / "bin" / "java").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/starts\n{end}\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    path = archive.path_of(find_java(), find_jars())
    path.touch()
    with pytest.raises(EngineFailed, match="did not start"):
        jvm.start({})
    assert [str(path) in start for start in (tmp_path / "starts").read_text().splitlines()] == [True, False]
    assert path.exists() == is_kept


def test_a_start_that_fails_leaves_no_folder_behind(tmp_path, monkeypatch):
    home = java_home(tmp_path / "jdk", "17.0.15")
    (home / "bin" / "java").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/start\nexit 1\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.setenv(MODULES, "")
    with pytest.raises(EngineFailed, match="did not start"):
        Engine([Pipeline("orders", SyntheticSource(), DiscardSink(), None)], bool)
    [folder] = re.findall(r"socket\.dir=(\S+)", (tmp_path / "start").read_text())
    assert Path(folder).name.startswith("penstock-run-")
    assert not Path(folder).exists()


def test_the_library_that_would_register_itself_with_every_session_is_left_out_and_nothing_else():
    home = find_jars()[0].parent
    assert [jar.name.split("_")[0] for jar in set(home.glob("*.jar")) - {*find_jars()}] == ["spark-mllib"]


def test_the_default_master_has_a_slot_for_each_lane_and_retries():
    assert master_for(3, None) == "local[3,4]"


@pytest.mark.parametrize("asked", ["local[2]", "local[2,4]", "local[2, 8]", "spark://127.0.0.1:7077", "yarn"])
def test_a_master_that_is_large_enough_or_elsewhere_is_taken(asked):
    assert master_for(2, asked) == asked


def test_a_standalone_cluster_asks_for_its_secret_or_for_leave_to_do_without(monkeypatch):
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "_SPARK_AUTH_SECRET"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        ConfigInvalid, match=r"spark://127\.0\.0\.1:7077, and spark\.config\.spark\.authenticate\.secret is missing"
    ):
        open_session(1, SparkSettings(master="spark://127.0.0.1:7077"))


@pytest.mark.parametrize(
    "config", [{"spark.authenticate.secret": "s3cret"}, {"spark.authenticate": "false"}, {"spark.authenticate": "FALSE"}]
)
def test_with_a_secret_or_without_authentication_a_cluster_is_tried(monkeypatch, config):
    def started(settings, *_):
        raise EngineFailed(f"started with {sorted(key for key in settings if key in config)}")

    monkeypatch.setattr(jvm, "start", started)
    with pytest.raises(EngineFailed, match=f"started with {sorted(config)}".replace("[", r"\[").replace("]", r"\]")):
        open_session(1, SparkSettings(master="spark://127.0.0.1:7077", config=config))


def test_the_secret_of_a_cluster_is_in_no_command_line():
    line = jvm._command({"spark.authenticate.secret": "s3cret", "spark.a": "b"}, Java(Path("/j"), 17, "17"), [], [])
    assert "spark.a=b" in line
    assert "s3cret" not in " ".join(line)


@pytest.mark.parametrize("asked", ["local", "local[1]", "local[1,4]"])
def test_too_few_slots_are_an_error_at_start(asked):
    with pytest.raises(EngineSlots, match="2 task slots"):
        master_for(2, asked)


def pipeline(name, **spark):
    return Pipeline(name, None, DiscardSink(), None, spark=SparkSettings(**spark))


def test_pipelines_that_contradict_each_other_cannot_share_a_session():
    with pytest.raises(ConfigInvalid, match=r"spark\.master"):
        common_settings([pipeline("a", master="local[2]"), pipeline("b", master="local[3]")])
    with pytest.raises(ConfigInvalid, match=r"spark\.config\.k"):
        common_settings([pipeline("a", config={"k": "1"}), pipeline("b", config={"k": "2"})])
    with pytest.raises(ConfigInvalid, match=r"spark\.memory differs between the pipelines: 1GiB, 2GiB"):
        common_settings([pipeline("a", memory=Bytes(2 * GIB)), pipeline("b", memory=Bytes(GIB))])
    assert common_settings([pipeline("a", config={"k": "1"}), pipeline("b", config={"l": "2"})]).config == {"k": "1", "l": "2"}
    assert common_settings([pipeline("a"), pipeline("b", memory=Bytes(GIB))]).memory == GIB


def test_what_is_printed_begins_anew_when_it_has_grown_long(tmp_path, monkeypatch):
    monkeypatch.setattr(jvm, "MOST_NOISE", 10)
    said = tmp_path / "spark.err"
    said.write_text("short")
    assert jvm._noise(said).read_text() == "short"
    said.write_text("much too long")
    assert not jvm._noise(said).exists()


def test_other_users_cannot_open_what_java_writes_and_workers_keep_the_umask_of_the_program(tmp_path, monkeypatch):
    home, kept = java_home(tmp_path / "jdk", "17.0.15"), tmp_path / "made" / "penstock"
    (home / "bin" / "java").write_text(f"#!/bin/sh\necho made > {kept}/archive\necho $PENSTOCK_UMASK > {tmp_path}/umask\nexit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PENSTOCK_CACHE", str(kept))
    before = os.umask(0o002)
    try:
        with pytest.raises(EngineFailed, match="did not start"):
            jvm.start({})
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (kept, *kept.iterdir())}
    assert modes == {"penstock": 0o700, "archive": 0o600, "spark.log": 0o600, "spark.err": 0o600}
    assert (tmp_path / "umask").read_text() == "2\n"


def test_what_earlier_versions_left_open_to_others_in_the_cache_is_closed_but_a_named_folder_keeps_its_mode(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "jdk", "17.0.15")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for folder, mode in ((tmp_path / "penstock", 0o700), (tmp_path / "named", 0o755)):
        folder.mkdir()
        folder.chmod(0o755)
        for name in ("spark.log", "spark.log.1", "spark.err"):
            (folder / name).touch()
            (folder / name).chmod(0o644)
        monkeypatch.setenv("PENSTOCK_CACHE", str(folder) if mode == 0o755 else "")
        with pytest.raises(EngineFailed, match="did not start"):
            jvm.start({})
        assert folder.stat().st_mode & 0o777 == mode
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_of_what_is_printed_at_a_failed_start_the_error_is_shown_and_the_file_that_has_the_rest(tmp_path, monkeypatch):
    home = java_home(tmp_path / "jdk", "17.0.15")
    thrown = 'Exception in thread "main" org.apache.spark.SparkException: Master must start with spark'
    (home / "bin" / "java").write_text(
        f"#!/bin/sh\necho words of another process >&2\necho '{thrown}' >&2\necho ' at main' >&2\nexit 1\n"
    )
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    with pytest.raises(EngineFailed) as caught:
        jvm.start({})
    assert caught.value.message == "Java did not start (exit code 1): Master must start with spark"
    assert caught.value.remedy == f"{tmp_path}/spark.err has more"


def test_a_setting_that_spark_refuses_is_shown_with_the_master_and_no_stack(tmp_path):
    refused = "from penstock.pipeline import SparkSettings; from penstock.spark.session import open_session;"
    refused += "open_session(1, SparkSettings(config={'spark.scheduler.mode': 'quick'}))"
    ended = subprocess.run([sys.executable, "-c", refused], capture_output=True, text=True, check=False)
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("penstock.errors.EngineFailed: [engine.failed] Spark did not start with the master local[")
    assert "'quick'" in last

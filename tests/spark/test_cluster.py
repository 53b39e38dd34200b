"""A pipeline on a standalone cluster: it delivers, and neither Spark nor the hosts show its secrets."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import onlooker
import pages
import psutil
import yaml

from fix_rig import Rig
from penstock.spark.cipher import KEY
from program import Program
from servers.cluster import Cluster
from servers.ports import free_port

TOKEN = "s3cret-token-of-the-receiver"


def test_a_pipeline_delivers_on_a_cluster_and_nothing_of_spark_shows_its_secrets(tmp_path: Path, postgres: str) -> None:
    ui, log = f"http://127.0.0.1:{free_port()}", tmp_path / "events"
    log.mkdir()
    with Cluster(tmp_path / "cluster") as cluster, Rig(tmp_path / "rig", state=postgres, auth={"bearer": "${TOKEN}"}) as rig:
        given = {"TOKEN": TOKEN, "CLUSTER_SECRET": cluster.secret, "STATE": postgres}
        on_cluster(rig, cluster, settings(urlsplit(ui).port, log))
        program = rig.start(env=given)
        rig.shop.sell(3)
        rig.until_settled()
        rig.shop.sell(3)
        rig.until_settled()
        assert {request.headers["authorization"] for request in rig.receiver.requests} == {f"Bearer {TOKEN}"}
        key = environment(program)[KEY]
        [application] = [one["id"] for one in cluster.state()["activeapps"]]
        shown = pages.read([ui, *pages.api(ui, application), *cluster.pages, *(f"{page}/json/" for page in cluster.pages)])
        others = [psutil.Process(one.pid) for one in cluster.processes]
        others += [child for one in others for child in one.children(True)]
        seen = onlooker.seen(program) | onlooker.seen_of(others)
        [executor] = [one for one in others if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())]
        tasks = memory(executor)
        assert program.terminate() == 0, program.tail()

        told, work = contents(log), contents(cluster.work)
        everything = shown | told | work | {name: read.decode(errors="replace") for name, read in seen.items()}
        hidden = [TOKEN, cluster.secret, str(urlsplit(postgres).password), key]
        assert all(application in "".join(some.values()) for some in (shown, told, work))
        assert application.encode() in tasks
        assert [secret for secret in hidden[::2] for one in spelled(secret) if one.encode() in tasks] == []
        assert [
            (where, secret) for where, text in everything.items() for secret in hidden for one in spelled(secret) if one in text
        ] == []


def settings(port: int | None, log: Path) -> dict[str, str]:
    """Everything is shown that Spark can show; executors start quickly."""
    return {
        "spark.authenticate.secret": "${CLUSTER_SECRET}",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.sql.ui.explainMode": "extended",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": log.as_uri(),
    }


def on_cluster(rig: Rig, cluster: Cluster, config: dict[str, str]) -> None:
    """Let the rig's pipeline run there, with its state's address in the environment."""
    content: dict[str, Any] = yaml.safe_load(rig.file.read_text())
    rig.file.write_text(yaml.safe_dump(content | {"state": "${STATE}", "spark": {"master": cluster.master, "config": config}}))


def contents(folder: Path) -> dict[str, str]:
    """All files there, also those that only their owner can read."""
    return {str(path): path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}


def memory(process: psutil.Process) -> bytes:
    """What a process has written in its memory: that of an executor has the tasks, with their plans and options."""
    found = []
    with Path(f"/proc/{process.pid}/mem").open("rb", 0) as read:
        for region in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
            if re.search(r" rw-p 0+ 00:00 0\s*($|\[heap)", region):
                start, end = (int(place, 16) for place in region.split()[0].split("-"))
                with suppress(OSError):
                    read.seek(start)
                    found.append(read.read(end - start))
    return b"".join(found)


def environment(program: Program) -> dict[str, str]:
    """Of the JVM of a program, which has the key of the run."""
    jvm = program.jvm()
    assert jvm is not None
    return jvm.environ()


def spelled(secret: str) -> Iterator[str]:
    """A secret as it is, and in the middle of text in base 85, wherever its groups of four begin."""
    yield secret
    for start in range(4):
        whole = (len(secret) - start) // 4 * 4
        yield base64.b85encode(secret[start : start + whole].encode()).decode()

"""What a running pipeline shows: metrics and health, whatever happens to its receiver and its engine."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from http.client import HTTPConnection, HTTPException

from deadline import until
from fix_rig import Rig
from penstock.testing.ports import free_port
from program import send, status


def asked(port: int, path: str) -> tuple[int, str]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, HTTPException):  # nobody listens, or it goes as it is asked
            return 0, ""


def value(port: int, name: str, labels: str = '{pipeline="shop"}') -> float:
    lines = asked(port, "/metrics")[1].splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name}{labels} ")), -1.0)


def test_metrics_and_health_follow_a_pipeline_through_an_outage_and_the_death_of_its_engine(rig: Rig) -> None:
    port = free_port()
    program = rig.start("--metrics", str(port))
    until(lambda: asked(port, "/healthz")[0] == 503)
    program.until_event("LaneClaimed")
    rig.shop.sell(5)
    until(lambda: value(port, "penstock_delivered_changes_total") == 5)
    until(lambda: value(port, "penstock_backlog_changes") == 0)
    assert asked(port, "/healthz")[0] == 200
    assert value(port, "penstock_state", '{pipeline="shop",state="leading"}') == 1

    rig.receiver.turn(fail_rate=1.0)
    rig.shop.sell(2)
    _, told = until(lambda: (got := asked(port, "/healthz?stalled=1s"))[0] == 503 and got)
    assert "stalled: 2 changes wait" in json.loads(told)["pipelines"]["shop"]["reason"]
    patient, _ = until(lambda: "sink.failing" in (got := asked(port, "/healthz?stalled=1h"))[1] and got)
    assert patient == 200
    assert value(port, "penstock_error", '{code="sink.failing",pipeline="shop"}') == 1
    code, [seen] = status(rig.file)
    assert (code, seen["state"], "status 500" in seen["error"]["message"]) == (0, "leading", True)
    until(lambda: value(port, "penstock_delivery_retries_total") > 1)

    rig.receiver.turn(fail_rate=0.0)
    until(lambda: asked(port, "/healthz?stalled=1s")[0] == 200 and value(port, "penstock_backlog_changes") == 0)
    until(lambda: '"trouble": null' in asked(port, "/healthz")[1] and "penstock_error{" not in asked(port, "/metrics")[1])
    assert status(rig.file)[1][0]["error"] is None

    send(signal.SIGKILL, [program.jvm()])
    _, told = until(lambda: (got := asked(port, "/healthz"))[0] == 503 and got)
    assert json.loads(told)["pipelines"]["shop"]["state"] in ("halted", "starting")
    rig.shop.sell(1)
    until(lambda: asked(port, "/healthz")[0] == 200 and value(port, "penstock_backlog_changes") == 0)
    assert value(port, "penstock_epoch") == 2
    assert program.terminate() == 0
    assert asked(port, "/healthz")[0] == 0

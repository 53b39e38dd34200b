"""Secrets are sent and never shown, though a receiver that refuses everything says each of them back."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import onlooker
import pytest
from stories import Part, Story, Way

from fix_rig import Rig
from penstock.cli import main

BARE = base64.b64encode(b"a key of 24 random bytes").decode()
GIVEN = {"TOKEN": "s3cret-token", "PASSWORD": "s3cret-password", "QUERY": "s3cret-query", "SIGNING": f"whsec_{BARE}"}
"""The environment of the processes."""
HEADER, BASIC = "s3cret-header", base64.b64encode(b"anna:s3cret-password").decode()
SECRETS = (*GIVEN.values(), HEADER, BASIC, BARE)

HIDDEN = {"halting": "/?*** Bearer *** *** ***", "parking": "/?*** Basic *** *** ***"}
"""What is left of the answers to each pipeline."""

STATUSES = {"halting": 401, "parking": 422}
BEARER = {"bearer": "${TOKEN}"}
USER = {"basic": {"user": "anna", "password": "${PASSWORD}"}}
TWICE = {"tries": 2, "min": "10ms", "max": "10ms"}


class Talkative(ThreadingHTTPServer):
    """Answers every request with one status, and with all that it should keep to itself."""

    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Refusing)
        self.status, self.url, self.heard = status, f"http://127.0.0.1:{self.server_port}/", list[str]()
        self._thread = Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Refusing(BaseHTTPRequestHandler):
    server: Talkative

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        said = f"{self.path} {self.headers['Authorization']} {self.headers['X-Api-Key']} {GIVEN['SIGNING']}"
        self.server.heard.append(said)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def emit(rig: Rig, auth: dict[str, Any], then: str) -> None:
    """A batch with a secret in every place, to a receiver that tells them."""
    secret(rig, auth, retry=TWICE | {"then": then})
    rig.file.write_text(rig.file.read_text() + "mode: batch\n")


def secret(rig: Rig, auth: dict[str, Any], **sink: Any) -> None:
    """A pipeline with a secret in every place."""
    url, headers = f"{rig.receiver.url}?token=${{QUERY}}", {"X-Api-Key": "${file:../key.txt}"}
    rig.write(url=url, auth=auth, headers=headers, signing={"secret": "${SIGNING}"}, **sink)


def shown(text: str) -> list[str]:
    """The secrets in it."""
    return [secret for secret in SECRETS if secret in text]


def written(rig: Rig) -> dict[str, str]:
    """All files of a pipeline, by their names."""
    return {path.name: path.read_text(errors="replace") for path in rig.folder.rglob("*") if path.is_file()}


def answers(capsys: Any, *files: Path) -> Iterator[tuple[str, str]]:
    """What all commands say of these pipelines, the first of which has dead letters."""
    alone = (["dead", "list"], ["dead", "show", "all"])
    for words in (["status"], ["validate"], ["doctor", "--probe"], *alone):
        for option in ([], ["--json"]):
            named = files[:1] if words in alone else files
            main([*words[:2], *map(str, named), *words[2:], *option])
            said = capsys.readouterr()
            yield " ".join([*words, *option]), said.out + said.err


class Told(Part):
    """Two batches, in a process whose log is JSON and in one whose log is text; then a live pipeline, seen by another user."""

    def way(self) -> Way:
        self.halting, self.parking = (self.rig(name, receiver=Talkative(code)) for name, code in STATUSES.items())
        (self.folder / "key.txt").write_text(HEADER)
        emit(self.halting, BEARER, "halt")
        emit(self.parking, USER, "dead-letter")
        for _ in range(2):
            self.halting.shop.sell()
            self.parking.shop.sell()
            yield [self.halting.file, self.parking.file]
            yield
        self.serving = self.rig("serving")
        secret(self.serving, BEARER)
        self.serving.shop.sell()
        program = yield [self.serving.file]
        self.serving.until_settled()
        self.seen, self.sockets = onlooker.seen(program), onlooker.sockets(program)
        yield


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The secrets are in the environment; lines are long enough for all that is said."""
    for name, secret in (GIVEN | {"COLUMNS": "1000"}).items():
        monkeypatch.setenv(name, secret)


@pytest.mark.usefixtures("given")
def test_what_a_receiver_says_back_is_in_no_log_no_answer_and_no_file(halted: Story, capsys: Any) -> None:
    told = halted.of(Told)
    assert len(told.programs) == 3
    for program in told.programs[:2]:
        assert program.process.returncode == 1, program.tail()
        assert shown(program.said()) == []
        assert all(answer in program.said() for answer in HIDDEN.values()), program.said()
    assert set(shown(" ".join(told.halting.receiver.heard + told.parking.receiver.heard))) == {*SECRETS} - {GIVEN["PASSWORD"]}

    for command, said in answers(capsys, told.parking.file, told.halting.file):
        assert shown(said) == [], command
        assert ("***" if command.startswith("validate") else "status 4") in said, f"{command}: {said}"
    for rig in (told.halting, told.parking):
        files = written(rig)
        assert [(name, secret) for name, text in files.items() for secret in shown(text)] == []
        assert HIDDEN[rig.name] in "".join(text for name, text in files.items() if name.startswith("state.db"))


def test_another_user_of_the_host_sees_no_secret_of_a_running_pipeline(halted: Story) -> None:
    told = halted.of(Told)
    assert told.serving.receiver.requests
    assert any(name.startswith("command line") for name in told.seen)
    assert [(name, secret) for name, read in told.seen.items() for secret in SECRETS if secret.encode() in read] == []
    assert [name for name in told.seen if name.startswith("block")] == []
    assert told.sockets == []

"""Runs pushed to a real server: whole or absent, once, and from whoever has a token alone."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_cases import make_result
from store_runs import fill, make_run, wanted

from torchstone.records import NotRunError, Run, UsageError
from torchstone.store import open_store, pushing
from torchstone.store.tokens import PUSH
from torchstone.web.pushes import BURST, RateLimit

MAIN = "from torchstone.cli import main; main()"
WAIT_S = 60.0


class Served:
    """A server on the database, and a token for it."""

    def __init__(self, db: object, env: dict[str, str], port: int = 0, *flags: str) -> None:
        self.db = str(db)
        words = ("serve", "--db", self.db, "--port", str(port), *flags)
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", MAIN, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.said)
        assert found, self.said + self.process.stdout.read()
        self.address, self.port = found[0], int(found[1])

    def token(self, life_s: float = 3600.0, scope: str = PUSH, **more: Any) -> str:
        with open_store(self.db) as store:
            return store.create_token("ci", scope, life_s, **more)[1]

    def send(
        self,
        text: bytes,
        token: str = "",
        method: str = "PUT",
        digest: str = "",
        **headers: str,
    ) -> tuple[int, dict[str, Any]]:
        """A request by hand: the status, and what it says."""
        digest = digest or hashlib.sha256(text).hexdigest()
        given = {"Content-Type": "application/json"}
        if token:
            given["Authorization"] = f"Bearer {token}"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            f"{self.address}/api/v1/pushes/{digest}", text or None, given, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            body = error.read()
            return error.code, json.loads(body) if body[:1] == b"{" else {"error": body.decode()}

    def close(self) -> str:
        """End it; all that it wrote."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=WAIT_S)
        return self.said + rest

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


Serve = Callable[..., Served]


@pytest.fixture
def serve(python_env: dict[str, str], db: object) -> Iterator[Serve]:
    """Start a server on the database that accepts pushes."""
    started: list[Served] = []

    def start(*flags: str, port: int = 0) -> Served:
        with open_store(str(db)):
            pass
        found = Served(db, python_env, port, *(flags or ("--accept-pushes",)))
        started.append(found)
        return found

    yield start
    for one in started:
        one.kill()


def push(source: object, run: str, to: str, token: str, env: dict[str, str], *more: str) -> Any:
    words = ("push", run, "--to", to, "--db", str(source), "--token-file", "-", *more)
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        input=token,
        capture_output=True,
        text=True,
        env=env,
        timeout=WAIT_S,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A database with a run of six cases."""
    path = tmp_path / "source.db"
    with open_store(str(path)) as store:
        fill(store, make_run(cases=6, label="night"), range(6))
    return path


def document(source: Path, run: str = "run-1") -> dict[str, Any]:
    with open_store(str(source), read_only=True) as store:
        return dict(json.loads(gzip.decompress(pushing.encode_run(store, run).body)))


def text_of(data: Any) -> bytes:
    return json.dumps(data).encode()


def stored(db: object) -> tuple[int, int]:
    with open_store(str(db), read_only=True) as store:
        return len(store.list_runs(limit=1000)), store.count()


def test_a_pushed_run_is_the_run(
    serve: Serve, source: Path, db: object, python_env: dict[str, str]
) -> None:
    server = serve()
    token = server.token()
    done = push(source, "night", server.address, token, python_env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("run-1: 6 cases added, 0 known, 6 planned")
    run = make_run(cases=6, label="night")
    with open_store(str(db), read_only=True) as store, open_store(str(source)) as first:
        view = store.run_view("night")
        assert view.run == replace(run, origin="pushed by ci")
        assert view.cases == wanted(run, range(6))
        for ident in first.result_ids(run.id):
            assert store.load(ident) == replace(first.load(ident), origin="pushed by ci")
    before = stored(db)
    again = push(source, "night", server.address, token, python_env, "--json")
    told = json.loads(again.stdout)
    assert (told["added"], told["known"], told["attempts"]) == (0, 6, 0)
    status, said = server.send(text_of(document(source)), token)
    assert (status, said["message"]) == (200, "already here")  # another text of the same content
    assert stored(db) == before
    with open_store(str(db), read_only=True) as store:
        assert [one.pushes for one in store.tokens()] == [2]
    secret = token.rpartition("_")[2]
    assert secret not in server.close() + done.stdout + done.stderr
    if isinstance(db, Path):
        assert secret.encode() not in b"".join(
            one.read_bytes() for one in db.parent.glob("results.db*")
        )

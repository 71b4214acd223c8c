"""Runs pushed to a real server: whole or absent, once, and from whoever has a token alone."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
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
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


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
    secret = token.split("_", 2)[2]
    assert secret not in server.close() + done.stdout + done.stderr
    if isinstance(db, Path):
        assert secret.encode() not in b"".join(
            one.read_bytes() for one in db.parent.glob("results.db*")
        )


def test_shards_join_and_another_content_is_refused(
    serve: Serve, db: object, tmp_path: Path
) -> None:
    server = serve()
    token = server.token()
    run = make_run(cases=6)
    parts = [tmp_path / f"shard{i}.db" for i in range(2)]
    for i, path in enumerate(parts):
        with open_store(str(path)) as store:
            fill(store, run, range(i, 6, 2))
    for path in parts:
        status, said = server.send(text_of(document(path)), token)
        assert (status, said["added"]) == (201, 3)
    with open_store(str(db), read_only=True) as store:
        assert store.run_view(run.id).cases == wanted(run, range(6))
    before = stored(db)
    other = document(parts[0])
    case = next(one for one in other["cases"] if one["result"])
    with open_store(str(parts[0])) as store:
        store.save(replace(store.load(case["result"]), id="another", label="x"))
        another = pushing._packed(pushing.results.encode_result(store.load("another")))
    other["results"]["another"] = another
    del other["results"][case["result"]]
    for one in other["cases"]:
        if one["result"] == case["result"]:
            one["result"] = "another"
            for figures in one["figures"]:
                figures["result_id"] = ""
    status, said = server.send(text_of(other), token)
    assert (status, stored(db)) == (409, before)
    assert "with another result" in said["error"]
    changed = document(parts[0])
    changed["run"]["plan"] = changed["run"]["plan"][::-1]
    changed["cases"] = [{**one, "position": 5 - one["position"]} for one in changed["cases"]]
    status, said = server.send(text_of(changed), token)
    assert (status, stored(db)) == (409, before)
    assert "another plan" in said["error"]


@pytest.mark.sqlite_only
def test_what_is_refused_is_not_stored(serve: Serve, source: Path, tmp_path: Path) -> None:
    server = serve()
    refuse_hostile_documents(server, source)
    refuse_bodies(server, source)
    refuse_tokens(server, source, tmp_path)


@pytest.mark.slow
def test_what_is_refused_is_not_stored_anywhere(serve: Serve, source: Path, tmp_path: Path) -> None:
    test_what_is_refused_is_not_stored(serve, source, tmp_path)


def refuse_tokens(server: Served, source: Path, tmp_path: Path) -> None:
    db = server.db
    text = text_of(document(source))
    with open_store(str(tmp_path / "elsewhere.db")) as store:
        foreign = store.create_token("", PUSH, 60.0)[1]
    good = server.token()
    revoked, expired = server.token(), server.token(0.05)
    with open_store(str(db)) as store:
        store.revoke_token(revoked.split("_")[1])
    time.sleep(0.1)
    for token, status, words in (
        ("", 401, "needs a token"),
        (foreign, 401, "not known"),
        (good[:-1] + ("a" if good[-1] != "a" else "b"), 401, "not known"),
        (good.upper(), 401, "not known"),
        ("x" * 5000, 401, "not known"),
        (revoked, 403, "is revoked"),
        (expired, 403, "is expired"),
        (server.token(scope="read"), 403, "is for 'read'"),
    ):
        for method, body in (("PUT", text), ("GET", b"")):
            found, said = server.send(body, token, method, hashlib.sha256(text).hexdigest())
            assert (found, words in said["error"]) == (status, True), (token[:12], said)
            assert token[13:] not in said["error"] or not token
    assert stored(db) == (0, 0)
    once = server.token(once=True)
    assert server.send(text, once)[0] == 201
    assert server.send(text, once)[0] == 200  # its own answer may have been lost
    other = document(source)
    other["run"]["id"] = "run-2"
    status, said = server.send(text_of(other), once)
    assert (status, "good for one push" in said["error"]) == (403, True)
    assert stored(db)[0] == 1


def with_changes(data: dict[str, Any], *path: Any, value: Any) -> bytes:
    place: Any = data
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return text_of(data)


FIGURES = ("cases", 0, "figures", 0)
HOSTILE = [
    (("run", "label"), "a\0b", "not printable"),
    (("run", "label"), "\x1b[2J", "not printable"),
    (("run", "label"), "last", "cannot be labelled"),
    (("run", "machine"), "\ud800", "not printable"),
    (("run", "id"), "../x y", "cannot be the id"),
    (("run", "plan", 0, "key", "model"), "x" * 501, "too long"),
    (("run", "plan", 0, "key", "mode"), "\u202e", "not printable"),
    (("run", "schema"), 99, "does not know"),
    (("run", "surprise"), 1, "unknown field"),
    (("run", "plan"), [], "0 cases"),
    (("version",), 2, "another version"),
    (("format",), "other", "not a run"),
    (("cases", 0, "position"), 10**30, "too large"),
    (("cases", 0, "arm"), "\0", "not printable"),
    (("cases", 0, "outcome"), "not_run", "no outcome"),
    ((*FIGURES, "definition"), 99, "not known here"),
    ((*FIGURES, "flops"), 2**70, "too large"),
    ((*FIGURES, "flops"), 2**200, "128 bits"),
    ((*FIGURES, "result_id"), "another", "those of another"),
    (("results",), {}, "not those that the cases name"),
]


def refuse_hostile_documents(server: Served, source: Path) -> None:
    token = server.token()
    for path, value, words in HOSTILE:
        status, said = server.send(with_changes(document(source), *path, value=value), token)
        assert 400 <= status < 500, (path, value, said)
        assert words in said["error"], (path, said)
        assert said["error"].isprintable()
        token = server.token()  # so many in a second are more than one may send
    bare = document(source)
    first = next(iter(bare["results"]))
    bomb = pushing._packed(pushing.EncodedResult(b"\x01" + gzip.zlib.compress(b" " * 2**27), ()))
    for damaged in ({"document": "?", "samples": []}, {"document": "AQ==", "samples": []}, bomb, 7):
        status, said = server.send(with_changes(bare, "results", first, value=damaged), token)
        assert status == 422, said
    assert stored(server.db) == (0, 0)


def refuse_bodies(server: Served, source: Path) -> None:
    token = server.token()
    text = text_of(document(source))
    for body, headers, status, words in (
        (b'{"a": NaN}', {}, 400, "NaN is not JSON"),
        (b'{"a": -Infinity}', {}, 400, "Infinity is not JSON"),
        (b'{"a": 1' + b"0" * 5000 + b"}", {}, 400, "not JSON"),
        (b"[" * 100_000, {}, 400, "too deeply"),
        (b"[" + b"[]," * 3_000_000 + b"[]]", {}, 413, "values"),
        (b"\xff\xfe", {}, 400, "not JSON"),
        (text, {"content_type": "text/plain"}, 415, "content type"),
        (text, {"content_encoding": "br"}, 415, "encoding"),
        (text, {"content_encoding": "gzip"}, 400, "not what gzip makes"),
        (gzip.compress(bytes(2**28)), {"content_encoding": "gzip"}, 413, "unpacks to more"),
        (gzip.compress(text)[:-9], {"content_encoding": "gzip"}, 400, "too early"),
    ):
        found, said = server.send(body, token, **headers)
        assert (found, words in said["error"]) == (status, True), (body[:20], said)
    found, said = server.send(text, token, digest="0" * 64)
    assert (found, "address names" in said["error"]) == (400, True)
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as raw:
        head = f"PUT /api/v1/pushes/{'0' * 64} HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        raw.sendall(f"{head}Content-Length: {pushing.MAX_BODY + 1}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as raw:
        raw.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())  # it says no length
        for _ in range(pushing.MAX_BODY // 2**20):
            raw.sendall(b"100000\r\n" + bytes(2**20) + b"\r\n")
        raw.sendall(b"1\r\n \r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    assert stored(server.db) == (0, 0)


@pytest.mark.sqlite_only
def test_the_usual_server_has_no_route_that_writes(serve: Serve, source: Path) -> None:
    server = serve("--repository", "")
    text = text_of(document(source))
    token = server.token()
    assert server.send(text, token)[0] == 405
    assert server.send(b"", token, "GET", "0" * 64)[0] == 404
    with urllib.request.urlopen(f"{server.address}/api/v1/openapi.json") as answer:
        described = json.loads(answer.read())["paths"]
    assert all(set(one) == {"get"} for one in described.values())


@pytest.mark.sqlite_only
def test_many_requests_of_a_token_are_refused(serve: Serve) -> None:
    server = serve()
    token = server.token()
    found = [server.send(b"", token, "GET", "0" * 64)[0] for _ in range(BURST + 20)]
    assert set(found) == {404, 429}
    assert server.send(b"", server.token(), "GET", "0" * 64)[0] == 404  # others are not concerned
    now = [0.0]
    rate = RateLimit(2, 0.5, lambda: now[0])
    assert [rate.wait_s("a") for _ in range(3)] == [0.0, 0.0, 2.0]
    now[0] = 2.0
    assert [rate.wait_s("a") for _ in range(2)] == [0.0, 2.0]


def kill_and_repeat(
    serve: Serve, db: object, path: Path, run: Run, env: dict[str, str], moment: float, whose: str
) -> None:
    """Kill one side `moment` after the push began; then push until it is there."""
    server = serve()
    token = server.token()
    words = ("push", run.id, "--to", server.address, "--db", str(path), "--retry-for", "30s")
    client = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        env={**env, "TORCHSTONE_TOKEN": token},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(moment)
        (server.process if whose == "server" else client).kill()
        if whose == "server":
            server.kill()
        with open_store(str(db)) as store:
            known = [one.done for one in store.list_runs(1000) if one.id == run.id]
        assert known in ([], [len(run.plan)]), "half a run"
        if whose == "server":
            serve(port=server.port)
            assert client.wait(WAIT_S) == 0  # it kept trying
        else:
            again = push(path, run.id, server.address, token, env, "--retry-for", "30s")
            assert again.returncode == 0, again.stderr
    finally:
        client.kill()
        client.wait()
    with open_store(str(db), read_only=True) as store:
        assert store.run_view(run.id).cases == wanted(run, range(len(run.plan)))


@pytest.mark.parametrize(
    ("whose", "moments"),
    [
        pytest.param("server", 1),
        pytest.param("server", 10, marks=pytest.mark.slow),
        pytest.param("client", 10, marks=pytest.mark.slow),
    ],
)
@pytest.mark.sqlite_only
def test_a_push_killed_anywhere_is_whole_or_absent(
    serve: Serve, db: object, tmp_path: Path, python_env: dict[str, str], whose: str, moments: int
) -> None:
    for number in range(moments):
        run = make_run(run_id=f"run-{number}", cases=60)
        path = tmp_path / f"source-{number}.db"
        with open_store(str(path)) as store:
            fill(store, run, range(60))
        moment = random.uniform(0.3, 2.5)
        kill_and_repeat(serve, db, path, run, python_env, moment, whose)


@pytest.mark.sqlite_only
def test_the_client_says_what_it_does(source: Path, python_env: dict[str, str]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nobody listens there
        to = f"http://127.0.0.1:{held.getsockname()[1]}"
        done = push(source, "night", to, "tst_x", python_env, "--retry-for", "1.5s")
    assert done.returncode == NotRunError.exit_code
    assert "not pushed yet (Connection refused); trying again in" in done.stderr
    assert "could not be pushed" in done.stderr
    for to, token, words in (
        ("http://bench.example", "tst_x", "can read the token"),
        ("ftp://x", "tst_x", "not an address"),
        ("https://u:p@x", "tst_x", "no password"),
        ("https://x", "", "no token in standard input"),
    ):
        done = push(source, "night", to, token, python_env)
        assert (done.returncode, words in done.stderr) == (UsageError.exit_code, True), done.stderr


@pytest.mark.sqlite_only
def test_a_database_that_cannot_be_written_is_no_busy_server(
    serve: Serve, source: Path, tmp_path: Path
) -> None:
    """A full or read-only disk does not go away by trying again: the answer and the log say so."""
    server = serve()
    token, text = server.token(), text_of(document(source))
    with sqlite3.connect(server.db) as direct:
        direct.execute(
            "CREATE TRIGGER full BEFORE INSERT ON run "
            "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
    status, told = server.send(text, token)
    assert (status, "log says why" in told["error"]) == (500, True)
    assert str(tmp_path) not in json.dumps(told)
    assert "A push was not stored" in server.close()


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_the_writing_routes_keep_their_description(serve: Serve) -> None:
    """Schemathesis sends what the description allows and what it does not: every answer is one that
    is described, and nothing comes to be stored."""
    import schemathesis
    from hypothesis import HealthCheck, given, settings

    server = serve()
    token = server.token()
    made = schemathesis.openapi.from_url(f"{server.address}/api/v1/openapi.json")
    writing = [one.ok() for one in made.include(path_regex="/pushes/").get_all_operations()]
    assert {one.method.lower() for one in writing} == {"get", "put"}
    for operation in writing:

        @settings(
            max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        @given(case=operation.as_strategy())
        def tried(case: Any) -> None:
            case.headers = {**dict(case.headers or {}), "Authorization": f"Bearer {token}"}
            answer = case.call(base_url=server.address)
            assert answer.status_code in {int(one) for one in case.operation.responses.status_codes}
            assert answer.status_code < 500

        tried()
    assert stored(server.db) == (0, 0)

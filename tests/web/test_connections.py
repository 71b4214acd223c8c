"""Readers that are slow or silent are closed in time, and others get their answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvicorn

from tests.targets.support import eventually
from torchstone.web import connections
from torchstone.web.connections import PatientProtocol, Waiting

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LONG_S = 120.0


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    body = b"x" * (64 << 20) if scope["path"] == "/large" else b"ok"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server with little patience."""
    monkeypatch.setattr(connections, "HEAD_S", 1.0)
    monkeypatch.setattr(connections, "STALLED_S", 1.0)
    monkeypatch.setattr(connections, "AT_LEAST_S", 0.2)
    kind = type("Small", (PatientProtocol,), {"waiting": Waiting(most=20, most_of_client=10)})
    config = uvicorn.Config(app, log_level="error", ws="none", lifespan="off", http=kind)  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    assert eventually(lambda: server.started, LONG_S)
    yield listening.getsockname()
    server.should_exit = True
    thread.join(LONG_S)
    listening.close()


def connected(stack: ExitStack, address: tuple[str, int]) -> socket.socket:
    return stack.enter_context(socket.create_connection(address, timeout=LONG_S))


def answer(address: tuple[str, int], path: bytes = b"/") -> bytes:
    with ExitStack() as stack:
        one = connected(stack, address)
        one.sendall(HEAD.replace(b" / ", b" " + path + b" "))
        return one.recv(100)


def dribble(one: socket.socket) -> None:
    for _ in range(300):
        one.sendall(b"G")
        time.sleep(0.05)


def whole(one: socket.socket) -> bytes:
    """Ask, and read the answer to its end."""
    one.sendall(HEAD)
    got = b""
    while not got.endswith(b"0\r\n\r\n"):
        part = one.recv(1000)
        assert part, got
        got += part
    return got


def taken(one: socket.socket) -> int:
    """Bytes until it is closed."""
    got = 0
    try:
        while part := one.recv(1 << 20):
            got += len(part)
    except ConnectionResetError:
        pass
    return got


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_silent_connection_is_closed(served: tuple[str, int]) -> None:
    with ExitStack() as stack:
        assert is_closed(connected(stack, served))


def test_a_head_that_comes_a_byte_at_a_time_is_cut_off(served: tuple[str, int]) -> None:
    with ExitStack() as stack:
        one = connected(stack, served)
        with pytest.raises(OSError, match=r"."):
            dribble(one)


def test_also_the_second_head_of_a_connection(served: tuple[str, int]) -> None:
    with ExitStack() as stack:
        one = connected(stack, served)
        assert whole(one).startswith(b"HTTP/1.1 200")
        one.sendall(b"GET / HT")
        assert is_closed(one)


def test_a_connection_may_ask_again(
    served: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", LONG_S)  # the pauses may become longer than asked
    with ExitStack() as stack:
        one = connected(stack, served)
        for _ in range(3):
            assert whole(one).startswith(b"HTTP/1.1 200")
            time.sleep(0.3)


def test_a_reader_that_takes_nothing_is_closed(served: tuple[str, int]) -> None:
    with ExitStack() as stack:
        one = connected(stack, served)
        one.sendall(HEAD.replace(b" / ", b" /large "))
        time.sleep(3.0)
        assert taken(one) < 64 << 20


def test_many_silent_ones_keep_nobody_out(served: tuple[str, int]) -> None:
    with ExitStack() as stack:
        for _ in range(60):
            connected(stack, served)
            time.sleep(0.02)
        assert answer(served).startswith(b"HTTP/1.1 200")


class Listed:
    """A connection that says when it is closed."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self.name, self.closed = name, closed

    def give_up(self) -> None:
        self.closed.append(self.name)


def test_the_oldest_that_never_asked_goes_first() -> None:
    waiting, closed = Waiting(most=3, most_of_client=2), list[str]()
    add = lambda name, client, asked, now: waiting.add(Listed(name, closed), client, asked, now)  # type: ignore[arg-type]  # noqa: E731
    add("kept", "a", True, 0.0)
    add("first", "b", False, 1.0)
    add("second", "c", False, 2.0)
    add("third", "d", False, 100.0)
    assert closed == ["first"]
    add("fourth", "e", False, 100.1)
    assert closed == ["first", "second"]
    add("fifth", "f", False, 100.2)
    assert closed == ["first", "second", "kept"]  # the new ones have only just come
    assert len(waiting) == 3


def test_one_client_loses_its_own() -> None:
    waiting, closed = Waiting(most=100, most_of_client=2), list[str]()
    for now, (name, client) in enumerate([("x", "b"), ("one", "a"), ("two", "a"), ("three", "a")]):
        waiting.add(Listed(name, closed), client, False, now * 10.0)  # type: ignore[arg-type]
    assert closed == ["one"]

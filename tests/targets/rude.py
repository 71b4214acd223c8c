"""Targets that do their work but behave badly towards the process they run in. None dies of it."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import time

from tests.targets.honest import Made, draw, squares


def noisy() -> Made:
    def call(values: list[int]) -> int:
        os.write(1, b"x" * 20_000)
        return squares(values)

    os.write(1, b"y" * (1 << 20))
    os.write(2, b"z" * (1 << 20))
    return call, draw


def speaks_the_protocol() -> Made:
    message = b'{"reply":{"wall_ns":[1]}}'

    def call(values: list[int]) -> int:
        for descriptor in (1, 2):
            os.write(descriptor, struct.pack("!I", len(message)) + message)
        return squares(values)

    return call, draw


def writes_to_low_descriptors() -> Made:
    def call(values: list[int]) -> int:
        for descriptor in range(3, 21):
            try:
                os.write(descriptor, b"garbage\n")
            except OSError:
                continue
        return squares(values)

    return call, draw


def moves_house() -> Made:
    os.chdir("/")
    sys.path[:] = [path for path in sys.path if "torchstone-" not in path]
    sys.argv[:] = []
    return squares, draw


def replaces_streams() -> Made:
    sys.stdout = None
    sys.stderr = object()  # type: ignore[assignment]
    return squares, draw


def handles_signals() -> Made:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, lambda *_: None)
    return squares, draw


def endless_threads() -> Made:
    for _ in range(3):
        threading.Thread(target=lambda: time.sleep(600)).start()
    return squares, draw


def leaves_children() -> Made:
    for more in ({}, {"start_new_session": True}, {"env": {}}):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], **more)
    return squares, draw


def closes_descriptors() -> Made:
    """And leaves a thread behind that would keep the interpreter from ending."""
    threading.Thread(target=lambda: time.sleep(600)).start()
    os.closerange(3, 257)
    return squares, draw


def writes_everywhere() -> Made:
    for descriptor in range(3, 257):
        try:
            os.write(descriptor, b"garbage that is longer than a header\n")
        except OSError:
            continue
    time.sleep(600)
    return squares, draw


def _forge(body: bytes) -> None:
    for descriptor in range(3, 257):
        try:
            os.write(descriptor, struct.pack("!I", len(body)) + body)
        except OSError:
            continue
    time.sleep(600)


def forges_an_answer() -> Made:
    """Well-formed by length, but no message."""
    _forge(b"nope")
    return squares, draw


def forges_a_list() -> Made:
    """A message, but none of ours."""
    _forge(b"[1, 2, 3]")
    return squares, draw


def forges_a_reply() -> Made:
    """A reply, but not of the form that was asked for."""
    _forge(b'{"reply": {"wall_ns": "all of it"}}')
    return squares, draw


def forges_a_failure() -> Made:
    """A failure, but not of our form."""
    _forge(b'{"failed": 7}')
    return squares, draw

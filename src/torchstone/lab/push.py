"""`torchstone push`: a stored run to a server, tried until it is there or refused; and tokens."""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import torchstone
from torchstone.records import NotRunError, UsageError, first_line
from torchstone.store import open_store

TOKEN = "TORCHSTONE_TOKEN"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
RETRIED = (408, 429, 500, 502, 503, 504)
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
ANSWER_S = 330.0
"""How long an answer is waited for; the server gives a body 300 s."""
LONGEST_ANSWER = 64 * 1024
LONGEST_TOKEN_FILE = 4096
PATH = "/api/v1/pushes/"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Pushed:
    """What the server said. `added` and `known` count cases; `attempts` requests with the run."""

    run: str
    digest: str
    added: int
    known: int
    planned: int
    bytes: int
    attempts: int


def push_run(wanted: str, to: str, token: str, db: str | None, retry_s: float, say: Say) -> Pushed:
    """Send the run; ask first whether it is there, so that a lost answer costs no second upload."""
    from torchstone.store.pushing import encode_run  # late: SQLAlchemy comes with it

    with open_store(db, create=False, read_only=True) as store:
        push = encode_run(store, wanted)
    address = f"{to.rstrip('/')}{PATH}{push.digest}"
    client = _Client(address, token)
    deadline = time.monotonic() + retry_s
    wait, attempts = FIRST_WAIT_S, 0
    while True:
        try:
            answer = client.ask()
            if answer.status == 404 and answer.ours:
                attempts += 1
                answer = client.send(push.body)
            told = answer.document
            if answer.status in (200, 201) and "added" in told:
                added, known = int(told["added"]), int(told.get("known", 0))
                size = len(push.body)
                return Pushed(push.run_id, push.digest, added, known, push.planned, size, attempts)
            problem, wait = answer.problem(to), max(wait, answer.retry_after_s)
        except (OSError, http.client.HTTPException) as error:
            problem = _reason(error)
        pause = wait * random.uniform(0.75, 1.25)  # so that shards do not come back together
        if time.monotonic() + pause > deadline:
            raise NotRunError(
                f"The run {push.run_id} could not be pushed to {to}: {problem}.",
                "Nothing is half stored there; try again, or for longer with --retry-for.",
            )
        say(f"not pushed yet ({problem}); trying again in {pause:.1f} s")
        time.sleep(pause)
        wait = min(2 * wait, LONGEST_WAIT_S)


def _reason(error: Exception) -> str:
    """Without the number of the system's error."""
    inner = getattr(error, "reason", error)
    found = inner if isinstance(inner, BaseException) else error
    return getattr(found, "strerror", None) or first_line(found) or type(error).__name__


@dataclass(frozen=True)
class _Answer:
    status: int
    document: Mapping[str, Any]
    headers: Message

    @property
    def ours(self) -> bool:
        """Whether it is Torchstone that says so, and not something before it."""
        return "error" in self.document

    @property
    def retry_after_s(self) -> float:
        text = str(self.headers.get("retry-after", ""))
        return min(float(text), LONGEST_WAIT_S) if text.isdecimal() else 0.0

    def problem(self, to: str) -> str:
        """Why it may be tried again; `UsageError` where that would not help."""
        error = str(self.document.get("error", "")).rstrip(".")
        if self.status in RETRIED:
            return f"HTTP {self.status}{': ' if error else ''}{error}"
        if 300 <= self.status < 400:
            raise UsageError(
                f"{to} sends us elsewhere, where the token is not sent.", "Give the final address."
            )
        if self.ours and self.status != 404:
            raise UsageError(
                f"{to} refused the push: {error}.", str(self.document.get("remedy", ""))
            )
        raise UsageError(
            f"{to} does not accept pushes (HTTP {self.status}).",
            "Start it with: torchstone serve --accept-pushes.",
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token is for the address that was given, and no other."""

    def redirect_request(
        self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        """None: the redirect itself is the answer."""
        return


class _Client:
    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._headers = {
            "Authorization": f"Bearer {token}",
            "User-Agent": f"torchstone/{torchstone.__version__}",
        }
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if urlsplit(address).hostname in LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        self._open = urllib.request.build_opener(*handlers).open

    def ask(self) -> _Answer:
        """Whether it is there."""
        return self._answer(urllib.request.Request(self._address, headers=self._headers))

    def send(self, body: bytes) -> _Answer:
        """The document."""
        more = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        headers = {**self._headers, **more}
        return self._answer(
            urllib.request.Request(self._address, data=body, headers=headers, method="PUT")
        )

    def _answer(self, request: urllib.request.Request) -> _Answer:
        try:
            answer = self._open(request, timeout=ANSWER_S)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            text = answer.read(LONGEST_ANSWER)
            try:
                document = json.loads(text)
            except (ValueError, RecursionError):
                document = {}
            found = document if isinstance(document, dict) else {}
            return _Answer(answer.status or 0, found, answer.headers)


def check_address(to: str, allow_http: bool) -> str:
    """The server's address; `UsageError` where the token would travel in the open."""
    try:
        parts = urlsplit(to)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or not to.isprintable() or " " in to:
        raise UsageError(
            f"{to[:80]!r} is not an address.", "Write https://HOST or http://HOST:PORT."
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError("An address has no password, query or fragment here.", "Remove it.")
    if parts.scheme == "http" and host not in LOOPBACK and not allow_http:
        raise UsageError(
            f"Over http:// everybody on the way to {host} can read the token.",
            "Use https://, or a tunnel (ssh -L); or add --allow-http in a network that you trust.",
        )
    return to


def read_token(path: str | None) -> str:
    """From the file, from standard input (`-`), or from the environment; never from arguments,
    which every user of the machine can list."""
    if path is None:
        text = os.environ.get(TOKEN, "")
        where = f"the variable {TOKEN}"
    elif path == "-":
        text, where = sys.stdin.read(LONGEST_TOKEN_FILE), "standard input"
    else:
        where = path
        try:
            with Path(path).open(encoding="utf-8", errors="replace") as file:
                text = file.read(LONGEST_TOKEN_FILE)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"There is no token in {where}.",
            f"Give --token-file FILE, or set {TOKEN}; make one with `torchstone token create`.",
        )
    return token

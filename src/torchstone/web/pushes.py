"""The one route that writes, there only with `--accept-pushes`: a run at the address of its hash.

`PUT` stores it whole or not at all, and any number of times is as good as once; `GET` says whether
it is here. Both need a token.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Annotated, Any

import anyio
from fastapi import FastAPI, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from torchstone.records import TorchstoneError
from torchstone.store import Store
from torchstone.store.pushing import (
    CONTENT_TYPE,
    MAX_BODY,
    PushRefused,
    PushReport,
    decode_push,
    known_push,
    receive,
    unpack_body,
)
from torchstone.store.tokens import PUSH, TokenInfo, TokenRefused
from torchstone.web.documents import ErrorDocument
from torchstone.web.query import API

PUSHES = f"{API}/pushes/"
BURST = 60
"""Requests of one token at once; after them `PER_S` a second."""
PER_S = 1.0
AT_ONCE = 4
"""Bodies held at once, of all tokens: each may be of `MAX_BODY` and unpack to more."""
BODY_S = 300.0
"""So long may a body take to arrive."""
RETRY_S = 2
"""When to come back, where the server is busy."""


@dataclass
class RateLimit:
    """How many requests each token has left; a bucket that fills again."""

    burst: int = BURST
    per_s: float = PER_S
    clock: Callable[[], float] = time.monotonic
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def wait_s(self, token: str) -> float:
        """Takes one; 0, or after how many seconds there is one."""
        with self._lock:
            now = self.clock()
            left, at = self._left.get(token, (float(self.burst), now))
            left = min(float(self.burst), left + (now - at) * self.per_s)
            taken = left >= 1.0
            self._left[token] = (left - 1.0 if taken else left), now
            return 0.0 if taken else (1.0 - left) / self.per_s


class _Refused(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, message: str, remedy: str = "", **headers: str) -> None:
        super().__init__(message)
        body = json.dumps({"error": message, "remedy": remedy})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = Response(body, status, named, "application/json")


def _busy(seconds: float = RETRY_S) -> _Refused:
    return _Refused(503, "The server is busy.", "Try again.", retry_after=f"{seconds:.0f}")


class _Pushes:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.rates = RateLimit()
        self.bodies = 0

    async def admit(self, request: Request) -> TokenInfo:
        """Whose request it is, before anything of its body is read."""
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not text:
            raise _Refused(
                401,
                "A push needs a token.",
                "Make one: torchstone token create --scope push.",
                www_authenticate="Bearer",
            )
        try:
            token = await run_in_threadpool(self.store.check_token, text.strip(), PUSH)
        except TokenRefused as error:
            status = 403 if error.known else 401
            raise _Refused(status, error.message, error.remedy, www_authenticate="Bearer") from None
        wait = self.rates.wait_s(token.id)
        if wait:
            message = f"More than {BURST} requests at once, or {PER_S:.0f} a second, of one token."
            raise _Refused(429, message, "Try again later.", retry_after=f"{wait:.0f}")
        return token

    async def body(self, request: Request) -> bytes:
        """All of it, as it was sent."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != CONTENT_TYPE:
            raise _Refused(415, f"A push has the content type {CONTENT_TYPE}.")
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY:
            raise _too_large()
        parts, size = [], 0
        try:
            with anyio.fail_after(BODY_S):
                async for part in request.stream():
                    size += len(part)
                    if size > MAX_BODY:
                        raise _too_large()
                    parts.append(part)
        except TimeoutError:
            raise _Refused(408, f"The body did not arrive within {BODY_S:.0f} s.") from None
        except ClientDisconnect:
            raise _Refused(400, "The body did not arrive.") from None
        return b"".join(parts)

    async def put(self, request: Request, digest: str) -> PushReport:
        """Store the document."""
        token = await self.admit(request)
        if self.bodies >= AT_ONCE:
            raise _busy()
        self.bodies += 1
        try:
            body = await self.body(request)
            encoding = request.headers.get("content-encoding", "").strip().lower()
            return await run_in_threadpool(self._store, body, encoding, digest, token)
        finally:
            self.bodies -= 1

    def _store(self, body: bytes, encoding: str, digest: str, token: TokenInfo) -> PushReport:
        text = unpack_body(body, encoding)
        incoming = decode_push(text, digest, token.name or token.id)
        return receive(self.store, incoming, token)


def _too_large() -> _Refused:
    return _Refused(413, f"A push has at most {MAX_BODY:,} bytes.")


Digest = Annotated[str, Path(description="SHA-256 of the document", pattern="^[0-9a-f]{64}$")]
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "It is here"},
    **{
        status: {"model": ErrorDocument, "description": words}
        for status, words in (
            (400, "Not what its address names, or not JSON"),
            (401, "No token, or one that is not known"),
            (403, "A token that is expired, revoked, used, or for something else"),
            (429, "Too many requests of this token"),
            (503, "Busy"),
        )
    },
}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorDocument, "description": words}
    for status, words in (
        (408, "The body did not arrive"),
        (409, "The run is here with other cases"),
        (413, "Too large"),
        (415, "Another content type or encoding"),
        (422, "Not a run"),
    )
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {CONTENT_TYPE: {"schema": {"type": "object"}}},
    },
    "security": [{"token": []}],
}


def add_pushes(app: FastAPI, writer: Store) -> None:
    """The routes."""
    pushes = _Pushes(writer)

    async def put(request: Request, digest: Digest) -> Response:
        try:
            report = await pushes.put(request, digest)
        except (_Refused, TorchstoneError) as error:
            return _answer_to(error)
        return _told(report, 201 if report.added else 200)

    async def get(request: Request, digest: Digest) -> Response:
        try:
            await pushes.admit(request)
            report = await run_in_threadpool(known_push, pushes.store, digest)
            if report is None:
                raise _Refused(404, "This document is not here.")
        except (_Refused, TorchstoneError) as error:
            return _answer_to(error)
        return _told(report, 200)

    path = f"{PUSHES}{{digest}}"
    told: dict[str, Any] = {"tags": ["pushes"], "response_class": Response}
    more: dict[int | str, dict[str, Any]] = {
        404: {"model": ErrorDocument, "description": "It is not here"}
    }
    app.add_api_route(
        path,
        get,
        summary="Whether a pushed document is here",
        operation_id="push_known",
        responses={**_ANSWERS, **more},
        openapi_extra={"security": _BODY["security"]},
        **told,
    )
    app.add_api_route(
        path,
        put,
        methods=["PUT"],
        summary="Push a run",
        operation_id="push",
        responses={**_ANSWERS, **_REFUSALS, 201: {"description": "Stored"}},
        openapi_extra=_BODY,
        **told,
    )


def _answer_to(error: Exception) -> Response:
    if isinstance(error, _Refused):
        return error.answer
    if isinstance(error, TokenRefused):  # revoked or used while the body was on its way
        return _Refused(403, error.message, error.remedy).answer
    if isinstance(error, PushRefused):
        return _Refused(error.status, error.message, error.remedy).answer
    return _busy().answer  # the sentence may name folders


def _told(report: PushReport, status: int) -> Response:
    words = "stored" if report.added else "already here"
    body = {"run": report.run, "added": report.added, "known": report.known}
    body |= {"planned": report.planned, "message": words}
    return Response(json.dumps(body), status, media_type="application/json")

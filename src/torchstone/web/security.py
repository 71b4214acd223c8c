"""What stands before every answer: only reading, only our own names, and headers that say no."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Nothing from elsewhere, and no script or style inside a page."""
PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
"""Of an SVG file by itself: its own styles, and nothing else."""
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LONGEST_URL = 16_384

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Hosts:
    """The names that this server answers to.

    A page elsewhere can make its own name point here (DNS rebinding) and then read what the server
    says; it cannot make the browser send another name. A number cannot be re-pointed, so where the
    server is open to others any number will do.
    """

    names: frozenset[str]
    any_number: bool = False

    @classmethod
    def of(cls, names: Iterable[str] = (), public: bool = False) -> Hosts:
        """The loopback names and these."""
        return cls(frozenset(name.lower() for name in (*LOOPBACK, *names)), public)

    def known(self, header: str) -> bool:
        """Whether a Host header is one of ours, whatever the port."""
        name = host_name(header)
        if name in self.names:
            return True
        return self.any_number and _is_number(name)


def host_name(header: str) -> str:
    """The name without port and brackets, in small letters; empty where there is none."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    name, _, port = text.partition(":")
    return name.rstrip(".") if not port or port.isdigit() else ""


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """The outermost layer: answers nothing but GET and HEAD, under a known name."""

    def __init__(self, app: App, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks over web sockets
            await send({"type": "websocket.close", "code": 1000})
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        head = scope["method"] == "HEAD"
        if head:
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, _guarded(send, head))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "This server only shows; it takes GET and HEAD.\n"
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._hosts.known(hosts[0].decode("latin-1")):
            return 400, "This name is not one of this server's. Start it with --name NAME.\n"
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > LONGEST_URL:
            return 414, "This address is too long.\n"
        return None


def _guarded(send: Send, head: bool) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            known = {name.lower() for name, _ in message["headers"]}
            added = {"content-security-policy": POLICY, **HEADERS}
            message["headers"] = [
                *message["headers"],
                *((n.encode(), v.encode()) for n, v in added.items() if n.encode() not in known),
            ]
        elif head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return sent


async def _refuse(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = {
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(body)),
        "content-security-policy": POLICY,
        **HEADERS,
    }
    if status == 405:
        headers["allow"] = "GET, HEAD"
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})

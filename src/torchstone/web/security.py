"""What stands before every answer: only reading, only our own names, and headers that say no."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import PlainTextResponse

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
        return name in self.names or (self.any_number and ip_address(name) is not None)


def host_name(header: str) -> str:
    """The name without port and brackets, in small letters; empty where there is none."""
    text = header.strip().lower()
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        colon, port = rest[:1], rest[1:]
    else:
        name, colon, port = text.partition(":")
    whole = colon in ("", ":") and (not port or port.isdigit())
    return name.rstrip(".") if whole else ""


def ip_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The number that a host is named by; None where it is a name."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


class Guard:
    """The outermost layer: answers nothing but GET and HEAD, under a known name; where pushes are
    accepted, PUT below `writable` too."""

    def __init__(self, app: App, hosts: Hosts, writable: str = "") -> None:
        self._app = app
        self._hosts = hosts
        self._writable = writable

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
            await refusal(scope, receive, _guarded(send, False))
            return
        head = scope["method"] == "HEAD"
        if head:
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, _guarded(send, head))

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        pushes = self._writable and scope["path"].startswith(self._writable)
        if scope["method"] not in ("GET", "HEAD") and not (pushes and scope["method"] == "PUT"):
            words = "This server only shows; it takes GET and HEAD.\n"
            return PlainTextResponse(words, 405, {"allow": "GET, HEAD"})
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._hosts.known(hosts[0].decode("latin-1")):
            words = "This name is not one of this server's. Start it with --name NAME.\n"
            return PlainTextResponse(words, 400)
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > LONGEST_URL:
            return PlainTextResponse("This address is too long.\n", 414)
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

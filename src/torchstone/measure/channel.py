"""Messages between conductor and worker: JSON, each with its length before it, over two pipes.

The pipes are not standard output, so nothing that user code prints can be taken for a message.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

_LENGTH = struct.Struct("!I")
MESSAGE_LIMIT = 256 * 1024 * 1024


class ChannelClosed(Exception):
    """The other side is gone."""


def send(descriptor: int, message: dict[str, Any]) -> None:
    """Write one whole message."""
    body = json.dumps(message, separators=(",", ":")).encode()
    view = memoryview(_LENGTH.pack(len(body)) + body)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BrokenPipeError:
            raise ChannelClosed from None


def receive(descriptor: int) -> dict[str, Any]:
    """Read one whole message; blocks."""
    (length,) = _LENGTH.unpack(_read(descriptor, _LENGTH.size))
    if length > MESSAGE_LIMIT:
        raise ChannelClosed(f"a message of {length} bytes cannot be ours")
    message = json.loads(_read(descriptor, length))
    if not isinstance(message, dict):
        raise ChannelClosed("not a message of ours")
    return message


def _read(descriptor: int, length: int) -> bytes:
    parts = []
    while length:
        part = os.read(descriptor, min(length, 1 << 20))
        if not part:
            raise ChannelClosed
        parts.append(part)
        length -= len(part)
    return b"".join(parts)

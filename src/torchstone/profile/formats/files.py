"""Profiles on disk, read within bounds, compressed or not. Nothing in them is trusted."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, cast

from torchstone.records import UsageError

MAX_TRACE_BYTES = 2 * 2**30
"""Of a trace, decompressed; it is read in pieces. 1.8 GB is the largest users speak of."""
MAX_DOCUMENT_BYTES = 256 * 2**20
"""Of a JSON document that has to be in memory as a whole."""
MAX_VALUES = 24_000_000
"""Values of such a document; at some 40 bytes each, about 1 GB of memory."""
MAX_CONTAINERS = 4_000_000
"""Lists and objects of such a document; at least 56 bytes each."""
HEAD_BYTES = 64 * 2**10
"""Of a file, to tell what it is."""

_CHUNK = 2**20
_GZIP_MAGIC = b"\x1f\x8b"
_ID_DIGITS = 12
_RECORD_AGAIN = "Record it again, or give another file."


def bad(name: str, what: str, remedy: str = _RECORD_AGAIN) -> UsageError:
    """The error for something wrong with a file."""
    return UsageError(f"{name}: {what}.", remedy)


def shown(path: Path) -> str:
    """A file's name as text that can be printed."""
    text = path.name.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c.isprintable() else "?" for c in text) or str(path)


class Input:
    """A file that is read once. `id` is known when it has been read."""

    def __init__(self, path: Path, limit: int) -> None:
        self.name = shown(path)
        self._path = path
        self._limit = limit
        self._hash = hashlib.sha256()
        self.bytes_read = 0
        self.compressed = False

    def chunks(self) -> Iterator[bytes]:
        """The content, decompressed, piece by piece; never more than the limit."""
        with _open(self._path) as file:
            self.compressed = isinstance(file, gzip.GzipFile)
            while chunk := _read(file, _CHUNK, self.name):
                self.bytes_read += len(chunk)
                if self.bytes_read > self._limit:
                    raise bad(
                        self.name,
                        f"it is larger than {self._limit // 2**20} MiB"
                        + (" when decompressed" if self.compressed else ""),
                        "Record less: fewer steps, or a shorter time.",
                    )
                self._hash.update(chunk)
                yield chunk

    def whole(self) -> bytes:
        """The content, decompressed."""
        return b"".join(self.chunks())

    def json(self) -> Any:
        """The content as JSON, with a bound on what it takes in memory."""
        data = self.whole()
        containers = data.count(b"[") + data.count(b"{")
        if containers > MAX_CONTAINERS or data.count(b",") > MAX_VALUES:
            raise bad(
                self.name,
                f"it has more than {MAX_VALUES:,} values or {MAX_CONTAINERS:,} lists",
                "Record less: fewer steps, or a shorter time.",
            )
        try:
            return json.loads(data.decode("utf-8-sig"), strict=False)
        except UnicodeDecodeError as error:
            raise bad(self.name, f"byte {error.start} is not UTF-8") from None
        except RecursionError:
            raise bad(self.name, "its JSON is nested too deep") from None
        except ValueError as error:  # not JSON, or an integer of thousands of digits
            line = getattr(error, "lineno", 0)
            said = f"{getattr(error, 'msg', 'a number is too long')}, line {line}"
            raise bad(self.name, f"this is not JSON ({said})") from None

    @property
    def id(self) -> str:
        """Names the content that was read."""
        return self._hash.hexdigest()[:_ID_DIGITS]

    @property
    def size(self) -> int:
        """Bytes of the file as it is on disk."""
        return os.stat(self._path).st_size

    @property
    def created(self) -> str:
        """When the file was last written."""
        seconds = os.stat(self._path).st_mtime
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def head_of(path: Path) -> bytes:
    """How a file begins, decompressed."""
    with _open(path) as file:
        return _read(file, HEAD_BYTES, shown(path))


def first_byte(head: bytes) -> bytes:
    """The first byte of a text that is not white space or a byte order mark."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """The file, through the decompressor where it is compressed."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UsageError(f"{shown(path)} is not a regular file.", "Name a file.")
        raw = open(path, "rb")  # noqa: SIM115 - closed below
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{shown(path)} cannot be read: {reason}.") from None
    with raw:
        if raw.peek(2)[:2] != _GZIP_MAGIC:
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as plain:
            yield cast("IO[bytes]", plain)


def _read(file: IO[bytes], size: int, name: str) -> bytes:
    try:
        return file.read(size)
    except EOFError:
        raise bad(name, "the compressed data is cut off") from None
    except zlib.error:
        raise bad(name, "the compressed data is damaged") from None
    except OSError as error:
        raise bad(name, f"it cannot be read: {error.strerror or error}") from None

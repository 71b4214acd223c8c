"""The part of Python's marshal format that `pstats` files are made of, read within bounds.

Python's own `marshal.loads` is not made for files of strangers: it can be crashed and can be made
to ask for any amount of memory. This reader knows dicts, tuples, text, numbers and None, makes no
code objects, and looks at every size before it believes it. Layout: CPython's Python/marshal.c.
"""

from __future__ import annotations

import struct
from typing import Any

MAX_DEPTH = 8
"""Containers within containers; a pstats file has 4."""
MAX_OBJECTS = 6_000_000
"""A function with five callers is about 40 objects: 150,000 such functions."""
MAX_TEXT = 65_536
"""Bytes of one text."""
MAX_DIGITS = 5
"""Of 15 bits each in a long integer: enough for 64 bits."""

_REF_FLAG = 0x80
_DICT_END = 0x30
_INT, _INT64, _SHORT, _LENGTH = (struct.Struct(code) for code in ("<i", "<q", "<H", "<i"))
_FLOAT = struct.Struct("<d")
_UNFINISHED = object()


class Malformed(ValueError):
    """Bytes that are not what a pstats file is made of; the message is a clause."""


def read_marshal(data: bytes) -> Any:
    """The value that the bytes hold: nested dicts, tuples, texts, integers, floats and None."""
    reader = _Reader(data)
    try:
        value = reader.value(0)
    except (IndexError, struct.error):
        raise Malformed(f"it is cut off at byte {len(data)}") from None
    if reader.at != len(data):
        raise Malformed(f"there is more behind the end, at byte {reader.at}")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._refs: list[Any] = []
        self._objects = 0

    def value(self, depth: int) -> Any:
        code = self._data[self.at]
        self.at += 1
        self._objects += 1
        if self._objects > MAX_OBJECTS:
            raise Malformed(f"it holds more than {MAX_OBJECTS:,} values")
        kind = chr(code & ~_REF_FLAG)
        if kind == "r":
            return self._reference()
        if kind in ")({[":
            return self._container(kind, depth + 1, bool(code & _REF_FLAG))
        value: str | int | float
        if kind in "zZaAut":
            value = self._text(kind)
        elif kind in "igIlf":
            value = self._number(kind)
        elif kind == "N":
            return None
        else:
            raise Malformed(f"byte {self.at - 1} begins a value of a kind that is not read here")
        if code & _REF_FLAG:
            self._refs.append(value)
        return value

    def _unpack(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self._data, self.at)
        self.at += form.size
        return value

    def _length(self, most: int) -> int:
        size: int = self._unpack(_LENGTH)
        if not 0 <= size <= most:
            raise Malformed(f"byte {self.at - _LENGTH.size} declares a size of {size:,}")
        return size

    def _bytes(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise Malformed(f"it is cut off: {size:,} bytes are declared at byte {self.at}")
        self.at += size
        return self._data[self.at - size : self.at]

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _reference(self) -> Any:
        index = self._unpack(_LENGTH)
        if not 0 <= index < len(self._refs):
            raise Malformed(f"byte {self.at - _LENGTH.size} refers to a value that is not there")
        if self._refs[index] is _UNFINISHED:
            raise Malformed(f"byte {self.at - _LENGTH.size} refers to a value that it is part of")
        return self._refs[index]

    def _text(self, kind: str) -> str:
        size = self._byte() if kind in "zZ" else self._length(MAX_TEXT)
        raw = self._bytes(size)
        try:
            # Names of files may hold bytes that are no text; they come as halves of characters.
            return raw.decode("utf-8", "surrogatepass") if kind in "ut" else raw.decode("ascii")
        except UnicodeDecodeError:
            raise Malformed(f"the text at byte {self.at - size} is not text") from None

    def _number(self, kind: str) -> int | float:
        if kind == "i":
            return int(self._unpack(_INT))
        if kind == "g":
            return float(self._unpack(_FLOAT))
        if kind == "I":
            return int(self._unpack(_INT64))
        if kind == "l":
            return self._long()
        try:
            return float(self._bytes(self._byte()).decode("ascii"))
        except ValueError:
            raise Malformed(f"the number before byte {self.at} is none") from None

    def _long(self) -> int:
        size = self._unpack(_LENGTH)
        if abs(size) > MAX_DIGITS:
            raise Malformed(f"the integer at byte {self.at} has {abs(size):,} digits")
        value: int = sum(self._unpack(_SHORT) << 15 * place for place in range(abs(size)))
        return -value if size < 0 else value

    def _container(self, kind: str, depth: int, shared: bool) -> Any:
        if depth > MAX_DEPTH:
            raise Malformed(f"it is nested deeper than {MAX_DEPTH} levels")
        place = len(self._refs)
        if shared:  # numbered before what is in it
            self._refs.append(_UNFINISHED)
        value = self._dict(depth) if kind == "{" else self._items(kind, depth)
        if shared:
            self._refs[place] = value
        return value

    def _items(self, kind: str, depth: int) -> tuple[Any, ...]:
        # An item is at least a byte, so a size that the bytes cannot hold is seen at once.
        left = len(self._data) - self.at
        size = self._byte() if kind == ")" else self._length(left)
        return tuple([self.value(depth) for _ in range(size)])

    def _dict(self, depth: int) -> dict[tuple[str, int, str], Any]:
        found: dict[tuple[str, int, str], Any] = {}
        while self._data[self.at] != _DICT_END:
            key = self.value(depth)
            # Only what pstats writes: other keys could be chosen to make the dict slow.
            if not (isinstance(key, tuple) and [type(k) for k in key] == [str, int, str]):
                raise Malformed(f"the key before byte {self.at} is not (file, line, name)")
            found[key] = self.value(depth)
        self.at += 1
        return found

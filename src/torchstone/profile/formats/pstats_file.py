"""What `cProfile` writes and `pstats`, SnakeViz and others read: functions and their callers.

A function is `(file, line, name)`; its figures are `(primitive calls, calls, own, total,
callers)`; a caller's are `(calls, primitive calls, own, total)`: the first two change places. The
older `profile` module counts calls by caller and nothing else. Built-ins have the file `~`.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchstone.profile import trees
from torchstone.profile.formats.base import FrameTable, Input, bad, brief, first_byte, line_of
from torchstone.records import Calls, Frame, FunctionCalls, Profile, Thread, UsageError
from torchstone.records.format import count

# The part of Python's marshal format that `pstats` files are made of, read within bounds.
#
# Python's own `marshal.loads` is not made for files of strangers: it can be crashed and can be made
# to ask for any amount of memory. This reader knows dicts, tuples, text, numbers and None, makes no
# code objects, and looks at every size before it believes it. Layout: CPython's Python/marshal.c.


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
_NUMBERS = {"i": struct.Struct("<i"), "I": struct.Struct("<q"), "g": struct.Struct("<d")}
_SIZE, _DIGIT = struct.Struct("<i"), struct.Struct("<H")
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
        """The next value, `depth` containers deep."""
        code = self._data[self.at]
        self.at += 1
        self._objects += 1
        if self._objects > MAX_OBJECTS:
            raise Malformed(f"it holds more than {MAX_OBJECTS:,} values")
        kind = chr(code & ~_REF_FLAG)
        value: Any
        if kind in _NUMBERS:
            value = self._unpack(_NUMBERS[kind])
        elif kind == "r":
            return self._reference()
        elif kind in ")([{":
            return self._container(kind, depth + 1, bool(code & _REF_FLAG))
        elif kind in "zZaAut":
            value = self._text(kind)
        elif kind == "N":
            return None
        elif kind in "lf":
            value = self._long() if kind == "l" else self._float()
        else:
            raise Malformed(f"byte {self.at - 1} begins a value of a kind that is not read here")
        if code & _REF_FLAG:
            self._refs.append(value)
        return value

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

    def _unpack(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self._data, self.at)
        self.at += form.size
        return value

    def _size(self, most: int) -> int:
        size: int = self._unpack(_SIZE)
        if not 0 <= size <= most:
            raise Malformed(f"byte {self.at - _SIZE.size} declares a size of {size:,}")
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
        index, at = self._unpack(_SIZE), self.at - _SIZE.size
        if not 0 <= index < len(self._refs):
            raise Malformed(f"byte {at} refers to a value that is not there")
        if self._refs[index] is _UNFINISHED:
            raise Malformed(f"byte {at} refers to a value that it is part of")
        return self._refs[index]

    def _text(self, kind: str) -> str:
        size = self._byte() if kind in "zZ" else self._size(MAX_TEXT)
        raw = self._bytes(size)
        try:
            # Names of files may hold bytes that are no text; they come as halves of characters.
            return raw.decode("utf-8", "surrogatepass") if kind in "ut" else raw.decode("ascii")
        except UnicodeDecodeError:
            raise Malformed(f"the text at byte {self.at - size} is not text") from None

    def _float(self) -> float:
        try:
            return float(self._bytes(self._byte()).decode("ascii"))
        except ValueError:
            raise Malformed(f"the number before byte {self.at} is none") from None

    def _long(self) -> int:
        size = self._unpack(_SIZE)
        if abs(size) > MAX_DIGITS:
            raise Malformed(f"the integer at byte {self.at} has {abs(size):,} digits")
        value: int = sum(self._unpack(_DIGIT) << 15 * place for place in range(abs(size)))
        return -value if size < 0 else value

    def _items(self, kind: str, depth: int) -> tuple[Any, ...]:
        # An item is at least a byte, so a size that the bytes cannot hold is seen at once.
        size = self._byte() if kind == ")" else self._size(len(self._data) - self.at)
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


MAX_BYTES = 64 * 2**20
MAX_CALLERS = 1_000_000
"""Of all functions together, when the shared ones are written out."""
MAX_CALLS = 2**63 - 1
MAX_SECONDS = 1e12
"""30,000 years: no sum of these overflows."""
BUILT_IN = "~"
REST = "(other call paths)"

_NOTE = (
    "Call paths are estimated: the file holds each function's callers, not the paths that led to "
    "them. The figures by function are exact."
)
_OLD_NOTE = "The times by caller are not in the file; they are shared out by calls."

Key = tuple[str, int, str]


class PstatsFormat:
    """See the module."""

    name = "pstats"
    endings = (".prof", ".pstats", ".cprof")

    def accepts(self, head: bytes, path: Path) -> bool:
        """A marshalled dict whose first key is a tuple; JSON goes on with a quote or a space."""
        if len(head) < 2 or head[0] & 0x7F != ord("{") or first_byte(head) != head[:1]:
            return False
        return chr(head[1] & 0x7F) in "()r" or head[:2] in (b"{0", b"\xfb0")

    def read(self, path: Path) -> Profile:
        """Exact figures by function, and estimated call paths."""
        file = Input(path, MAX_BYTES)
        data = file.whole()
        try:
            reading = _Reading(read_marshal(data))
        except Malformed as error:
            raise bad(file.name, f"this is not what cProfile writes; {error}") from None
        functions = tuple(reading.functions)
        rest = reading.frames.add(REST, kind="root")
        wall = 0.0
        for one in functions:  # in the order and by the addition of `pstats.Stats`
            wall += one.of.own_s
        return file.profile(
            self.name,
            how="count",
            tool="cProfile",
            frames=reading.frames.frames,
            threads=(Thread("profiled thread", critical=True),),
            tree=trees.from_callers(functions, rest),
            functions=functions,
            wall_s=max(0.0, wall),
            estimated=True,
            problems=reading.problems(),
            notes=(_NOTE, _OLD_NOTE) if reading.counts_only else (_NOTE,),
        )

    def write(self, profile: Profile) -> bytes:
        """The figures by function as `pstats.Stats` loads them."""
        keys = [_key(frame) for frame in profile.frames]
        table: dict[Key, tuple[Any, ...]] = {}
        for one in functions_of(profile):
            of, key = one.of, keys[one.of.frame]
            figures = (of.primitive, of.calls, of.own_s, of.total_s)
            *before, callers = table.get(key, (0, 0, 0.0, 0.0, {}))
            for by in one.callers:
                caller, more = keys[by.frame], (by.calls, by.primitive, by.own_s, by.total_s)
                callers[caller] = _plus(callers.get(caller, (0, 0, 0.0, 0.0)), more)
            table[key] = (*_plus(before, figures), callers)
        return marshal.dumps(table)

    def remarks(self, profile: Profile) -> tuple[str, ...]:
        """Paths, threads and time are not in such a file."""
        said = ["pstats holds figures by function and caller: no call paths, threads or times."]
        if not profile.functions and profile.tree and not profile.tree.calls:
            said.append("Calls were not counted; they are written as 0.")
        return tuple(said)


def functions_of(profile: Profile) -> tuple[FunctionCalls, ...]:
    """Figures by function in seconds: the exact ones, or those that the tree gives."""
    if profile.functions:
        return profile.functions
    if profile.tree is None or profile.tree.unit != "seconds":
        raise UsageError(
            "The profile has no times by function, so it cannot be written as pstats.",
            "Write it as speedscope or folded.",
        )
    return trees.functions(profile.tree)


def _plus(one: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _key(frame: Frame) -> Key:
    built_in = frame.kind == "native" and not frame.file and not frame.line
    return (BUILT_IN if built_in else frame.file, frame.line, frame.name)


def frame_of(table: FrameTable, key: Key) -> int:
    """The frame of a function that is named as `pstats` names it."""
    file, line, name = key
    if file == BUILT_IN and not line:
        return table.add(name, kind="native")
    return table.add(name, file, line_of(line))


class _Reading:
    """A table of figures, checked and turned into records."""

    def __init__(self, table: Any) -> None:
        if not isinstance(table, dict) or not table:
            raise Malformed("it holds no function")
        self.frames = FrameTable()
        self.counts_only = False
        self._negative: list[str] = []
        self._callers = 0
        self.functions = [self._function(key, figures) for key, figures in table.items()]

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the figures."""
        if not self._negative:
            return ()
        said = count(len(self._negative), "function")
        return (f"{said} with a time below zero (such as {self._negative[0]}).",)

    def _function(self, key: Key, figures: Any) -> FunctionCalls:
        if not (isinstance(figures, tuple) and len(figures) == 5 and isinstance(figures[4], dict)):
            raise Malformed(f"{brief(key[2])} has no figures")
        primitive, calls, own, total, callers = figures
        self._callers += len(callers)
        if self._callers > MAX_CALLERS:
            raise Malformed(f"it names more than {MAX_CALLERS:,} callers")
        return FunctionCalls(
            self._calls(key, calls, primitive, own, total),
            tuple(self._caller(key, caller, value) for caller, value in callers.items()),
        )

    def _caller(self, key: Key, caller: Key, value: Any) -> Calls:
        if type(value) is int:
            self.counts_only = True
            value = (value, value, 0.0, 0.0)
        if not isinstance(value, tuple) or len(value) != 4:
            raise Malformed(f"{brief(key[2])} has no figures for a caller")
        return self._calls(caller, *value)

    def _calls(self, key: Key, calls: Any, primitive: Any, own: Any, total: Any) -> Calls:
        for number in (calls, primitive):
            if type(number) is not int or not 0 <= number <= MAX_CALLS:
                raise Malformed(f"{brief(key[2])} was called {brief(number)} times")
        for seconds in (own, total):
            if type(seconds) not in (int, float) or not abs(seconds) < MAX_SECONDS:
                raise Malformed(f"{brief(key[2])} took {brief(seconds)} seconds")
        if own < 0 or total < 0:
            self._negative.append(brief(key[2]))
        return Calls(frame_of(self.frames, key), calls, primitive, float(own), float(total))


PSTATS = PstatsFormat()

"""The shape of a profile format: another tool's profile, in and out.

Formats of profiles by name, through entry points; and by what a file holds.
"""

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
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Protocol, cast

from torchstone import __version__
from torchstone.records import Frame, Profile, UsageError
from torchstone.records.format import count
from torchstone.records.plugins import Registry, did_you_mean


class ProfileFormat(Protocol):
    """One kind of file. Found by entry point; the entry point's name is the format's name."""

    @property
    def name(self) -> str:
        """How it is named on the command line: `speedscope`."""

    @property
    def endings(self) -> tuple[str, ...]:
        """How names of such files end, without `.gz`; the first is what we give to our own."""

    def accepts(self, head: bytes, path: Path, /) -> bool:
        """Whether a file that begins like this (decompressed) is of this kind."""

    def read(self, path: Path, /) -> Profile:
        """The profile in the file.

        The file is not to be trusted. Whatever is wrong with it is a `UsageError`; no other
        exception leaves here. What can be mended is mended and said in `Profile.problems`.
        """

    def write(self, profile: Profile, /) -> bytes:
        """The profile as such a file; a `UsageError` where it holds nothing that could be said."""

    def remarks(self, profile: Profile, /) -> tuple[str, ...]:
        """What such a file leaves out of this profile, a sentence each."""


# What is wrong with a profile, counted, with an example each.


SENTENCES = {
    "no_time": "{n} left out: time stamp or duration is no number",
    "no_event": "{n} left out: no name or no thread",
    "negative": "{n} left out: the duration is negative",
    "zero_time": "{n} left out: the time stamp is zero, far from all others",
    "end_alone": "{n} left out: an end without a beginning",
    "unnamed_end": "{n} with an end that names another event than the one that is open",
    "no_end": "{n} without an end, taken to last until the last time stamp of the thread",
    "longer": "{n} cut: longer than the span that it begins in",
    "overlap": "{n} cut: overlapping the span that it begins in",
    "mark": "{n} cut: a mark begins and ends within the calls that make it",
    "rounding": "{n} cut: overlapping another by at most 1 µs, as rounding does",
    "backwards": "{n} earlier than the one before, taken to be at the same time",
    "weight": "{n} left out: the weight is negative or no number",
    "unit": "{n} left out: another unit than that of the first",
}
"""By kind. `mark` and `rounding` are notes, the others are problems."""
NOTES = frozenset({"mark", "rounding"})


_BRIEF = 60


def brief(value: object) -> str:
    """A value as a short text: a name between quotes, cut where it is long; no nest of lists."""
    if isinstance(value, str):
        return repr(value if len(value) <= _BRIEF else value[: _BRIEF - 1] + "…")
    if value is None or isinstance(value, (int, float)):
        return f"{value!r:.{_BRIEF}}"
    return f"a {type(value).__name__}"


class Faults:
    """A tally of faults by kind."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._examples: dict[str, str] = {}
        self._said: list[str] = []

    def add(self, kind: str, example: str, times: int = 1) -> None:
        """One more of a kind; the first example is kept."""
        self._counts[kind] = self._counts.get(kind, 0) + times
        self._examples.setdefault(kind, example)

    def say(self, sentence: str) -> None:
        """A problem that needs no counting."""
        self._said.append(sentence)

    def problems(self, *what: str) -> tuple[str, ...]:
        """A sentence for each kind; `what` is one of what is counted, and several of them."""
        return (*self._said, *self._sentences(what, notes=False))

    def notes(self) -> tuple[str, ...]:
        """The same for what is no problem."""
        return self._sentences(("span",), notes=True)

    def _sentences(self, what: tuple[str, ...], notes: bool) -> tuple[str, ...]:
        return tuple(
            f"{SENTENCES[kind].format(n=count(times, *what))} (such as {self._examples[kind]})."
            for kind, times in self._counts.items()
            if (kind in NOTES) == notes
        )


# Frames from the names that tools give to places in code.


MAX_FRAMES = 500_000
"""Distinct places. A whole test run of a large project has some 30,000 functions."""
MAX_NAME = 2_000
"""Characters; templates of C++ kernels come near it."""
MAX_LINE = 2**31 - 1
UNNAMED = "(unnamed)"

_GC = ("Python GC", "<GC>", "garbage collection")
_NATIVE = ("<built-in", "<method", "<slot wrapper", "{built-in", "{method", "{slot wrapper")
_NATIVE_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".cu", ".pyx", ".rs", ".S")
_AT = " at 0x"


def clean(text: str) -> str:
    """A name that can be printed and stored: what cannot be is escaped, what is endless is cut."""
    if len(text) > MAX_NAME:
        text = text[: MAX_NAME - 1] + "…"
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def line_of(value: Any) -> int:
    """A line number from anything; 0 where it is none."""
    return value if type(value) is int and 0 <= value <= MAX_LINE else 0


def guess_kind(name: str, file: str = "") -> str:
    """The kind of a frame that is known by its name alone."""
    if name in _GC:
        return "gc"
    if name.startswith("aten::"):
        return "op"
    if name.startswith(_NATIVE) or file.endswith((".so", *_NATIVE_SOURCES)) or ".so." in file:
        return "native"
    return "python"


def without_address(name: str) -> str:
    """The name of a built-in method without the address of its object, which no run repeats."""
    at = name.find(_AT)
    if at < 0 or not name.startswith(_NATIVE):
        return name
    end = at + len(_AT)
    while end < len(name) and name[end] in "0123456789abcdefABCDEF":
        end += 1
    return name[:at] + name[end:]


def split_place(text: str) -> tuple[str, str, int]:
    """Name, file and line from `name (file:line)` or `file(line): name`; else the text alone."""
    if text.endswith(")"):
        name, found, place = text[:-1].rpartition(" (")
        if found and name:
            file, colon, line = place.rpartition(":")
            if colon and file and _is_number(line):
                return name, file, int(line)
            if " " not in place and ("." in place or "/" in place):
                return name, place, 0
        return text, "", 0
    place, found, name = text.partition("): ")
    file, bracket, line = place.rpartition("(")
    if found and name and bracket and file and _is_number(line):
        return name, file, int(line)
    return text, "", 0


def _is_number(text: str) -> bool:
    return len(text) < 10 and text.isascii() and text.isdigit()


class FrameTable:
    """Frames by what they are, each once; an index for each."""

    def __init__(self) -> None:
        self._index: dict[tuple[str, str, int, str], int] = {}

    def add(self, name: str, file: str = "", line: int = 0, kind: str = "python") -> int:
        """The index of that frame."""
        key = (clean(name) or UNNAMED, clean(file), line, kind)
        found = self._index.setdefault(key, len(self._index))
        if found >= MAX_FRAMES:
            raise UsageError(
                f"The profile names more than {MAX_FRAMES:,} different places.",
                "Record less: fewer steps, or a shorter time.",
            )
        return found

    def add_place(self, text: str) -> int:
        """The index of the frame that a text such as `name (file:line)` speaks of."""
        name, file, line = split_place(text)
        kind = guess_kind(name, file)
        if kind == "python" and not line and "/" in file and not file.endswith(".py"):
            kind = "native"  # a symbol of a program: `main (/usr/bin/python3)`
        return self.add(name, file, line_of(line), kind)

    @property
    def frames(self) -> tuple[Frame, ...]:
        """All of them, by index."""
        return tuple(Frame(*key) for key in self._index)


# Profiles on disk, read within bounds, compressed or not. Nothing in them is trusted.


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
    """A file that is read once."""

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
    def size(self) -> int:
        """Bytes of the file as it is on disk."""
        return os.stat(self._path).st_size

    def profile(self, origin: str, *, seconds: float = 0.0, **parts: Any) -> Profile:
        """A profile that was read from here, made at that time or when the file was written."""
        when = datetime.fromtimestamp(seconds or os.stat(self._path).st_mtime, timezone.utc)
        return Profile(
            id=self._hash.hexdigest()[:_ID_DIGITS],
            created=when.isoformat(timespec="seconds"),
            label=self.name,
            origin=origin,
            version=__version__,
            **parts,
        )


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


FORMATS = Registry(
    "torchstone.profile_formats",
    {
        "chrome": "torchstone.profile.formats.chrome:CHROME",
        "folded": "torchstone.profile.formats.folded:FOLDED",
        "pstats": "torchstone.profile.formats.pstats_file:PSTATS",
        "speedscope": "torchstone.profile.formats.speedscope:SPEEDSCOPE",
        "torchstone": "torchstone.profile.formats.own:OWN",
    },
)
_GZIP_LEVEL = 6


@cache
def known_formats() -> dict[str, metadata.EntryPoint]:
    """Installed formats by name; nothing is imported."""
    return FORMATS.by_name()


def find_format(name: str) -> ProfileFormat:
    """The format of that name; a `UsageError` that names the nearest ones otherwise."""
    known = known_formats()
    if name in known:
        return cast("ProfileFormat", known[name].load())
    names = ", ".join(sorted(known))
    raise UsageError(
        f"There is no profile format {name!r}.", f"{did_you_mean(name, known)}Formats: {names}."
    )


def recognise(path: Path) -> ProfileFormat:
    """The format that takes the file for its own: by content, then by the ending of its name."""
    head = head_of(path)
    formats = [find_format(name) for name in sorted(known_formats())]
    fitting = [one for one in formats if one.accepts(head, path)]
    name = path.name.removesuffix(".gz")
    if len(fitting) != 1:
        named = [one for one in fitting or formats if name.endswith(one.endings)]
        fitting = named[:1] or fitting
    if len(fitting) == 1:
        return fitting[0]
    names = [one.name for one in fitting or formats]
    raise UsageError(
        f"{shown(path)} may be any of {', '.join(names)}."
        if fitting
        else f"{shown(path)} is not a profile of a kind that is known here.",
        f"Say what it is; formats: {', '.join(names)}.",
    )


def read_profile(path: str | Path, format: str | None = None) -> Profile:
    """The profile that a file holds. Its kind is told by its content where `format` is None."""
    path = Path(path)
    chosen = find_format(format) if format else recognise(path)
    return chosen.read(path)


def write_profile(profile: Profile, path: str | Path, format: str) -> tuple[str, ...]:
    """Write it to a file (compressed if the name ends in `.gz`); gives what the file leaves out,
    a sentence each."""
    path = Path(path)
    chosen = find_format(format)
    data = chosen.write(profile)
    if path.name.endswith(".gz"):
        data = gzip.compress(data, _GZIP_LEVEL, mtime=0)
    try:
        path.write_bytes(data)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{shown(path)} cannot be written: {reason}.") from None
    return chosen.remarks(profile)

"""Folded stacks, one a line: `outermost;…;innermost 12`.

What stack-collapsing scripts, `py-spy record -f raw`, `torch.profiler.export_stacks` and CPython's
own sampler write. Frames may carry a place: `name (file:line)`. py-spy puts the line that was
running there, so a function that was seen on two lines is two frames. Nothing says what is counted;
ours say it in a comment, which other readers pass over.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchstone.profile import trees
from torchstone.profile.formats.base import (
    MAX_DOCUMENT_BYTES,
    MAX_NAME,
    FrameTable,
    Input,
    bad,
    clean,
)
from torchstone.profile.formats.own import Metadata, metadata_of, read_metadata
from torchstone.records import CallTree, Frame, LineTable, Profile, Thread, UsageError

MAX_LINE = 2**20
"""Characters of one line."""
MAX_DEPTH = 10_000
"""Frames of one stack."""
MAX_THREADS = 100_000
MAX_WEIGHT = 2**53
"""Whole numbers up to here are exact as floats."""

_THREAD = re.compile(r"thread \((0x[0-9A-Fa-f]{1,16}|[0-9]{1,18})\)(?:: (.*))?")
_HEAD_LINE = re.compile(rb"[^\n]*\S [0-9]+(\.[0-9]+)?\r?")
_HEAD = "# torchstone: "
"""Begins the comment that says what the profile was that we wrote."""
_UNSAID = (
    "Folded stacks do not say what they count: samples, microseconds or bytes. So shares have no "
    "intervals."
)
_UNENDED = "The last line has no end: the file may be cut off."
_SCALES = {"seconds": 1e9}
"""What we write is whole numbers: seconds become nanoseconds."""
_MOST_SCALE = 1e6
"""Other weights that are not whole are multiplied by a power of ten up to here."""
_SAME = 1e-6
"""So near to a whole number is one: the rest comes from adding up."""


class FoldedFormat:
    """See the module."""

    name = "folded"
    endings = (".folded", ".collapsed", ".raw", ".txt")

    def accepts(self, head: bytes, path: Path) -> bool:
        """Text whose first line ends in a number, or is our own comment."""
        if head.startswith(_HEAD.encode()):
            return b"\0" not in head
        lines = [line for line in head.split(b"\n", 4)[:4] if line.strip()]
        return b"\0" not in head and bool(lines) and _HEAD_LINE.fullmatch(lines[0]) is not None

    def read(self, path: Path) -> Profile:
        """Call paths; lines too where frames have them."""
        file = Input(path, MAX_DOCUMENT_BYTES)
        reading = _Reading(file)
        was = reading.was
        return file.profile(
            self.name,
            **(was.parts() if was else {"how": "sample", "tool": "folded stacks"}),
            frames=reading.table.frames,
            threads=tuple(reading.threads),
            tree=reading.builder.tree(reading.unit, scale=reading.scale),
            lines=reading.lines(),
            problems=() if reading.ended else (_UNENDED,),
            notes=() if was else (_UNSAID,),
        )

    def write(self, profile: Profile) -> bytes:
        """A line for each call path that took something by itself."""
        tree = profile.tree
        if tree is None or not any(own > 0 for own in tree.own):
            raise UsageError(
                "The profile has no call paths, so it cannot be written as folded stacks.",
                "Write it as pstats or torchstone.",
            )
        names = [_frame_text(frame) for frame in profile.frames]
        several = len(set(tree.threads)) > 1
        scale = _scale(tree)
        lines = [f"{_HEAD}{json.dumps(metadata_of(profile, scale))}\n"]
        for node, own in enumerate(tree.own):
            weight = round(own * scale)
            if weight > 0:
                words = [names[frame] for frame in trees.path_of(tree, node)]
                if several:
                    words.insert(0, _thread_text(profile.threads[tree.threads[node]]))
                lines.append(f"{';'.join(words)} {weight}\n")
        if len(lines) == 1:
            raise UsageError(
                "The call paths weigh too little to be written as whole numbers.",
                "Write it as speedscope or torchstone.",
            )
        return "".join(lines).encode()

    def remarks(self, profile: Profile) -> tuple[str, ...]:
        """No unit, no time axis."""
        tree = profile.tree
        said = [
            "Folded stacks hold call paths and whole numbers; kinds, tables and times are left out."
        ]
        if tree is None:
            return tuple(said)
        scale = _scale(tree)
        if tree.unit == "seconds":
            said.append("The numbers are nanoseconds; only Torchstone reads that in the file.")
        elif scale > 1:
            said.append(f"Not all weights are whole: the numbers are {scale:,.0f} times as large.")
        lost = [own for own in tree.own if own > 0 and round(own * scale) <= 0]
        if lost:
            share = sum(lost) / sum(tree.own)
            said.append(f"Call paths that round to nothing are left out: {share:.2g} of the whole.")
        return tuple(said)


class _Reading:
    """The lines of a file, added up."""

    def __init__(self, file: Input) -> None:
        self.table = FrameTable()
        self.builder = trees.TreeBuilder()
        self.threads: list[Thread] = []
        self.ended = True
        self.was: Metadata | None = None
        self._thread_index: dict[str, int] = {}
        self._frames: dict[str, int] = {}
        self._innermost: dict[int, float] = {}
        self._name = file.name
        for number, line in enumerate(self._lines(file.chunks()), 1):
            if number == 1 and line.startswith(_HEAD):
                self.was = _said(line)
            elif line.strip() and not _is_comment(line):
                self._add(number, line)
        if not self.builder.parents:
            raise bad(self._name, "there is no stack in it", "Record something, or give another.")

        self.unit, self.scale = (self.was.unit, self.was.scale) if self.was else ("weight", 1.0)

    def lines(self) -> tuple[LineTable, ...]:
        """Weights by the line of the innermost frame, where frames carry the running line."""
        frames = self.table.frames
        places = {(f.name, f.file) for f in frames if f.line}
        if len(places) == sum(1 for f in frames if f.line):
            return ()  # each function has one line: its first, or too little was seen to tell
        by_file: dict[str, dict[int, float]] = {}
        for frame, weight in self._innermost.items():
            if frames[frame].line:
                lines = by_file.setdefault(frames[frame].file, {})
                lines[frames[frame].line] = lines.get(frames[frame].line, 0.0) + weight
        return tuple(self._table_of(file, of) for file, of in by_file.items())

    def _table_of(self, file: str, of: dict[int, float]) -> LineTable:
        lines = tuple(sorted(of))
        weights = tuple(of[line] / self.scale for line in lines)
        if self.unit == "seconds":
            return LineTable(file, lines, seconds=weights)
        return LineTable(file, lines, hits=tuple(map(round, weights)))

    def _lines(self, chunks: Iterable[bytes]) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        rest = ""
        try:
            for chunk in chunks:
                *whole, rest = (rest + decoder.decode(chunk)).split("\n")
                if max(map(len, (rest, *whole))) > MAX_LINE:
                    raise bad(self._name, f"a line is longer than {MAX_LINE:,} characters")
                yield from whole
            rest += decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise bad(self._name, "this is not text in UTF-8") from None
        if rest:
            self.ended = False
            yield rest

    def _add(self, number: int, line: str) -> None:
        stack, _, said = line.rstrip().rpartition(" ")
        weight = _weight(said)
        if weight is None or not stack.strip():
            raise bad(self._name, f"line {number} is not a stack and a number")
        words = stack.split(";")
        if len(words) > MAX_DEPTH:
            raise bad(self._name, f"line {number} has more than {MAX_DEPTH:,} frames")
        thread = self._thread(words)
        frames = [self._frame(word) for word in words if word]
        if not frames:
            return
        self.builder.add_stack(frames, weight, thread)
        self._innermost[frames[-1]] = self._innermost.get(frames[-1], 0.0) + weight

    def _frame(self, word: str) -> int:
        word = word[: MAX_NAME + 1]
        found = self._frames.get(word)
        if found is None:
            found = self._frames[word] = self.table.add_place(clean(word))
        return found

    def _thread(self, words: list[str]) -> int:
        """The thread that a stack begins with; it is taken off the stack."""
        found = _THREAD.fullmatch(words[0]) if words[0].startswith("thread (") else None
        key = words.pop(0)[:MAX_NAME] if found and len(words) > 1 else ""
        if key not in self._thread_index:
            if len(self.threads) >= MAX_THREADS:
                raise bad(self._name, f"it has more than {MAX_THREADS:,} threads")
            number = int(found[1], 0 if found[1].startswith("0x") else 10) if found and key else 0
            name = found[2] if found and key and found[2] else key or "all threads"
            self._thread_index[key] = len(self.threads)
            self.threads.append(Thread(clean(name), number))
        return self._thread_index[key]


def _scale(tree: CallTree) -> float:
    """What weights are multiplied by to be whole numbers, or as near as the reader allows."""
    scale = _SCALES.get(tree.unit)
    if scale is not None:
        return scale
    scale, largest = 1.0, max(tree.own, default=0.0)
    while (
        scale < _MOST_SCALE
        and largest * scale * 10 <= MAX_WEIGHT
        and any(abs(own * scale - round(own * scale)) > _SAME for own in tree.own)
    ):
        scale *= 10
    return scale


def _said(line: str) -> Metadata | None:
    """What our own comment says."""
    try:
        return read_metadata(json.loads(line.removeprefix(_HEAD)))
    except (ValueError, RecursionError):
        return None


def _is_comment(line: str) -> bool:
    """Whether a line that begins with `#` is no stack: Ruby's names begin so too. A stack of one
    frame cannot be told from a remark that ends in a number, and is taken for one."""
    if not line.startswith("#"):
        return False
    stack, _, said = line.rstrip().rpartition(" ")
    return _weight(said) is None or ";" not in stack


def _weight(text: str) -> float | None:
    if not text.isascii() or not text.replace(".", "", 1).isdigit() or len(text) > 30:
        return None
    value = float(text)
    return value if math.isfinite(value) and value <= MAX_WEIGHT else None


def _frame_text(frame: Frame) -> str:
    text = frame.name
    if frame.file:
        text += f" ({frame.file}:{frame.line})" if frame.line else f" ({frame.file})"
    return clean(text).replace(";", ":")


def _thread_text(thread: Thread) -> str:
    return clean(f"thread ({thread.id}): {thread.name}").replace(";", ":")


FOLDED = FoldedFormat()

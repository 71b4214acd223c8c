"""The record of a monitor: one file of JSON lines a rank, only ever added to, flushed a chunk.

`kill -9` loses what was not written yet, at most a second. A reader takes a line that was cut short
for what it is, and nothing in a file is trusted.

Which rank holds up the others: the one that waits *least* for them at the end of backward.

The exchange of gradients makes all ranks end backward together, so that their backward times are
alike whoever is slow. What differs is how long each has waited in it. Ranks are compared second by
second; by chance the same one of n waits least in k of k seconds with n^(1-k), and only then, and
only where the wait is worth speaking of, it is named.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torchstone.machine.processes import read_text
from torchstone.records import RecordError, UsageError, from_data, to_data
from torchstone.records.errors import data_directory
from torchstone.records.monitoring import (
    FALSE_ALARMS,
    KINDS,
    PHASE_NAMES,
    PHASES,
    Line,
    MonitorEnd,
    MonitorEvent,
    MonitorHeader,
    RequestChunk,
    StepChunk,
)
from torchstone.records.plugins import did_you_mean

VARIABLE = "TORCHSTONE_MONITORS"
"""The folder of all monitors, where it is not the usual one."""
PROFILE_REQUEST = "profile-request.json"
LONGEST_LINE = 1 << 20
WRITES_WITHIN_S = 10.0
"""A monitor that runs writes each second; a slow step may take a few."""
_WORDS = {cls: word for word, cls in KINDS.items()}
_RANK = re.compile(r"rank-(\d{1,6})\.jsonl")
_STARTED = 19
"""Position in /proc/PID/stat, after the name in brackets."""


def monitors_folder() -> Path:
    """Where monitors write; it need not exist yet."""
    named = os.environ.get(VARIABLE, "")
    return Path(named).expanduser() if named else data_directory() / "monitors"


def encode(line: Line) -> str:
    """One line of the file."""
    data = {"line": _WORDS[type(line)], **to_data(line)}
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def decode(text: str) -> Line | None:
    """What the line says; None where it is cut short, or none of ours."""
    if len(text) > LONGEST_LINE:
        return None
    try:
        data = json.loads(text)
        cls = KINDS[data.pop("line")]
        return from_data(cls, data)
    except (ValueError, KeyError, AttributeError, TypeError, RecordError, RecursionError):
        return None


class Journal:
    """Writes a rank's file. It is a sink like any other: what cannot be written is counted."""

    def __init__(self, folder: Path, header: MonitorHeader) -> None:
        self._folder = folder
        self._header = header
        self._file: int | None = None
        self._headed = self._cut = False
        """Whether the header is written, and whether the last line is not: the disk was full."""

    def write(self, lines: Iterable[Line]) -> None:
        """All lines at once, so that a reader sees none of them in halves."""
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"rank-{self._header.rank}.jsonl"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o644)
        if not self._headed:
            lines = (self._header, *lines)
        text = "".join(encode(one) + "\n" for one in lines)
        data = (f"\n{text}" if self._cut else text).encode()
        while data:
            self._cut = True
            data = data[os.write(self._file, data) :]
        self._headed, self._cut = True, False

    def close(self) -> None:
        """Nothing is buffered."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


@dataclass
class RankRecord:
    """What one rank has written so far. `read` takes what came since."""

    path: Path
    header: MonitorHeader | None = None
    chunks: list[StepChunk] = field(default_factory=list)
    requests: list[RequestChunk] = field(default_factory=list)
    events: list[MonitorEvent] = field(default_factory=list)
    end: MonitorEnd | None = None
    damaged: int = 0
    """Lines that could not be read."""
    _position: int = 0
    _rest: bytes = b""

    def read(self) -> bool:
        """Take what was added; whether there was anything."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return False
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line.decode("utf-8", "replace"))
        return bool(lines)

    def peek(self) -> None:
        """Take the header alone."""
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            found = decode(file.readline(LONGEST_LINE).decode("utf-8", "replace"))
            self.header = found if isinstance(found, MonitorHeader) else None

    def _take(self, text: str) -> None:
        found = decode(text)
        if isinstance(found, MonitorHeader):
            self.header = found  # written again when more is known
        elif isinstance(found, StepChunk):
            self.chunks.append(found)
        elif isinstance(found, RequestChunk):
            self.requests.append(found)
        elif isinstance(found, MonitorEvent):
            self.events.append(found)
        elif isinstance(found, MonitorEnd):
            self.end = found
        elif text.strip():
            self.damaged += 1

    @property
    def rank(self) -> int:
        """By the name of the file."""
        found = _RANK.fullmatch(self.path.name)
        return int(found[1]) if found else 0

    @property
    def running(self) -> bool:
        """Whether the process lives that wrote the header, and has not said that it ended."""
        head = self.header
        return (
            head is not None
            and self.end is None
            and head.host == os.uname().nodename
            and process_started(head.pid) == head.process_started is not None
        )


@dataclass
class MonitorRecord:
    """A monitor: the records of its ranks."""

    folder: Path
    ranks: list[RankRecord]

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def header(self) -> MonitorHeader | None:
        """Of the first rank that has one."""
        return next((one.header for one in self.ranks if one.header), None)

    @property
    def running(self) -> bool:
        """Whether any rank is."""
        return any(one.running for one in self.ranks)

    @property
    def last_s(self) -> float:
        """When something was written last."""
        times = [
            one[-1].time_s for rank in self.ranks for one in (rank.chunks, rank.requests) if one
        ]
        starts = [one.header.started_s for one in self.ranks if one.header]
        return max([0.0, *times, *starts])

    @property
    def stamp(self) -> tuple[int, int]:
        """Changes with its files; ends with the time of the newest."""
        found = [one.path.stat() for one in self.ranks if one.path.exists()]
        newest = max((one.st_mtime_ns for one in found), default=0)
        return sum(one.st_size for one in found), newest

    def read(self) -> bool:
        """Take what was added, and ranks that have come; whether there was anything."""
        known = {one.path for one in self.ranks}
        self.ranks += [RankRecord(path) for path in _files(self.folder) if path not in known]
        self.ranks.sort(key=lambda one: one.rank)
        return sum(one.read() for one in self.ranks) > 0


def _files(folder: Path) -> Iterator[Path]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if _RANK.fullmatch(name):
            yield folder / name


def open_record(folder: Path) -> MonitorRecord:
    """A monitor, read."""
    record = MonitorRecord(folder, [])
    record.read()
    return record


def find_record(name: str, folder: Path | None = None) -> MonitorRecord:
    """The monitor of that id, its beginning, its name (the newest of them), or `last`; read."""
    return read_again(_find(name, folder).folder)


_KEPT: dict[Path, MonitorRecord] = {}
_LOCK = threading.Lock()
MOST_RECORDS_KEPT = 8


def read_again(folder: Path) -> MonitorRecord:
    """A monitor that somebody looks at again and again: only what was added is read."""
    with _LOCK:
        record = _KEPT.pop(folder, None) or MonitorRecord(folder, [])
        if any(not one.path.exists() for one in record.ranks):
            record = MonitorRecord(folder, [])
        record.read()
        _KEPT[folder] = record
        if len(_KEPT) > MOST_RECORDS_KEPT:
            del _KEPT[next(iter(_KEPT))]
        return record


def _find(name: str, folder: Path | None) -> MonitorRecord:
    records = listed(folder)
    if name == "last" and records:
        return records[0]
    fitting = [one for one in records if one.id == name]
    fitting = fitting or [one for one in records if one.header and one.header.name == name][:1]
    fitting = fitting or [one for one in records if name and one.id.startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        ids = ", ".join(one.id for one in fitting[:5])
        raise UsageError(f"Several monitors begin with {name!r}: {ids}.", "Give more of the id.")
    near = did_you_mean(name, [one.id for one in records])
    raise UsageError(
        f"There is no monitor {name!r}.", f"{near}`torchstone monitor list` lists all of them."
    )


def listed(folder: Path | None = None) -> list[MonitorRecord]:
    """All monitors with their headers alone, those that wrote last first."""
    place = folder or monitors_folder()
    try:
        folders = [entry for entry in place.iterdir() if entry.is_dir()]
    except OSError:
        return []
    records = [MonitorRecord(one, [RankRecord(path) for path in _files(one)]) for one in folders]
    for one in records:
        one.ranks.sort(key=lambda rank: rank.rank)
        for rank in one.ranks:
            rank.peek()
    return sorted((one for one in records if one.ranks), key=lambda one: -one.stamp[-1])


def running_records(folder: Path | None = None) -> list[MonitorRecord]:
    """Those that run, read; of the others nothing but the header was looked at."""
    alive = [read_again(one.folder) for one in listed(folder) if one.running]
    return [one for one in alive if one.running]


def all_records(folder: Path | None = None) -> list[MonitorRecord]:
    """All monitors, read, those that wrote last first."""
    return [open_record(one.folder) for one in listed(folder)]


def monitors_stamp() -> int:
    """Changes whenever a monitor writes."""
    place, newest = monitors_folder(), 0
    with contextlib.suppress(OSError):
        for folder in os.scandir(place):
            for path in _files(Path(folder.path)):
                found = path.stat()
                newest ^= hash((path.name, folder.name, found.st_mtime_ns, found.st_size))
    return newest


def monitors_writing() -> int:
    """How many wrote within the last seconds; no record is read."""
    since, found = time.time() - WRITES_WITHIN_S, 0
    with contextlib.suppress(OSError):
        for folder in os.scandir(monitors_folder()):
            found += any(path.stat().st_mtime >= since for path in _files(Path(folder.path)))
    return found


def process_started(pid: int) -> int | None:
    """When a process began, in ticks since the machine did; None where it is gone."""
    words = (read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    if len(words) <= _STARTED or words[0] in "ZX":
        return None
    return int(words[_STARTED])


SLOW_RANK_ALPHA = FALSE_ALARMS / 4
WINDOW = 60
"""Seconds that are looked at."""
LEAST_WAIT = 0.1
"""Of the step: less than this is not worth a sentence."""
NAMED_SHARE = 0.8
"""A phase is named when what the slow rank spends more in it covers this much of the wait."""
LEAST_SECONDS = 5


@dataclass(frozen=True)
class SlowRank:
    """A rank that the others wait for."""

    rank: int
    share: float
    """Of a step, that the others wait for it more than it waits for them."""
    seconds: int
    phase: str
    text: str


def slow_rank(record: MonitorRecord, looks: int = 1) -> SlowRank | None:
    """The slow rank of the last minute; None where there is none, or it cannot be told.

    Who looks again and again gives the number of the look: each has a smaller part of the rate.
    """
    rows = _by_second(record)
    ranks = [one.rank for one in record.ranks]
    if len(ranks) < 2 or len(rows) < LEAST_SECONDS:
        return None
    alpha = SLOW_RANK_ALPHA * 6.0 / (math.pi * looks) ** 2
    least = [min(row, key=lambda rank: row[rank]["collective"]) for row in rows]
    culprit = max(set(least), key=least.count)
    hits = least.count(culprit)
    if len(ranks) * _tail(len(rows), hits, 1 / len(ranks)) > alpha:
        return None
    means = {
        rank: {name: sum(row[rank][name] for row in rows) / len(rows) for name in (*rows[0][rank],)}
        for rank in ranks
    }
    others = [means[rank] for rank in ranks if rank != culprit]
    victim = max(one["collective"] for one in others)
    wait = victim - means[culprit]["collective"]
    wall = max(1e-9, sum(means[culprit][name] for name in _COMPARED))
    if wait / wall < LEAST_WAIT:
        return None
    excess = {
        name: means[culprit][name] - sorted(one[name] for one in others)[len(others) // 2]
        for name in _COMPARED
        if name != "collective"
    }
    phase = max(excess, key=lambda name: excess[name])
    named = phase if excess[phase] >= NAMED_SHARE * wait else ""
    why = f"its {PHASE_NAMES[phase]} takes longer" if named else "no single phase explains it"
    text = (
        f"Rank {culprit} holds up the others: they wait {wait / wall * 100:.0f} % of a step "
        f"for it, and {why}."
    )
    return SlowRank(culprit, wait / wall, len(rows), named, text)


_COMPARED = tuple(name for name in PHASES if name != "transfer")


def _by_second(record: MonitorRecord) -> list[dict[int, dict[str, float]]]:
    """Per step, in seconds that all ranks have; a rank is a row of phases."""
    chunks = {
        one.rank: {int(c.time_s): c for c in one.chunks[-WINDOW:] if math.isfinite(c.time_s)}
        for one in record.ranks
    }
    if not chunks:
        return []
    common = set.intersection(*(set(one) for one in chunks.values()))
    rows = []
    for second in sorted(common):
        row = {rank: _per_step(found[second]) for rank, found in chunks.items()}
        if all(row.values()):
            rows.append(row)
    return rows


def _per_step(chunk: StepChunk) -> dict[str, float]:
    sums = chunk.kinds.get("train")
    if sums is None or not sums.steps or sums.phases_ns.get("collective") is None:
        return {}
    return {name: (sums.phases_ns.get(name) or 0) / sums.steps / 1e9 for name in _COMPARED}


def _tail(count: int, hits: int, share: float) -> float:
    """The chance of so many hits or more."""
    return sum(
        math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(hits, count + 1)
    )

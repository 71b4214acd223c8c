"""The sign of life of a running suite: who measures which run now, and how far it is.

A program that measures a run keeps a small file beside the database and holds a lock on it. The
kernel drops the lock when the program ends, whatever ended it, so a file without a lock is what a
dead program left behind. Of a server's database it is a row, written again every few seconds
(`postgres`). Nothing here fails a run: where no sign can be made there is none.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import stat
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from torchstone.store.location import Location

SUFFIX = ".alive"
MOST_BYTES = 8192
"""More than any sign of ours takes: its texts are cut to `LONGEST` before it is written."""
LONGEST = 500
MOST_FILES = 1000
"""So many entries of the folder are looked at: far more than there are shards."""
_LAST_SECOND = 32_503_680_000.0  # the year 3000
_MOST_CASES = 10**9
_NAME, _APART, _PART = ".json", "+", ".part-"
_STALE_S = 60.0
"""A part of a file is locked within microseconds of being made; one this old has no owner."""
_TRIES = 3


@dataclass(frozen=True)
class Part:
    """One living program that measures a run, or a shard of it.

    `done` of `planned` are the cases of this program alone. Times are UTC seconds. Everything but
    the life itself was read from a file that anybody could have written: nothing to rely on.
    """

    pid: int = 0
    started_s: float = 0.0
    case: str = ""
    since_s: float = 0.0
    done: int = 0
    planned: int = 0
    shard: str = ""
    host: str = ""
    node: str = ""
    """Of a cluster."""


@dataclass(frozen=True)
class Progress:
    """All living programs of a run, the longest at it first."""

    run_id: str
    parts: tuple[Part, ...]

    @property
    def done(self) -> int:
        """Cases that these programs have ended since they were started."""
        return sum(part.done for part in self.parts)

    @property
    def planned(self) -> int:
        """Cases that these programs were started for."""
        return sum(part.planned for part in self.parts)


class Heartbeat(ABC):
    """Our own sign."""

    def __init__(self, run_id: str, shard: str = "", node: str = "") -> None:
        self._token = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._run_id = run_id
        now, host = time.time(), socket.gethostname()[:LONGEST]
        self._part = Part(os.getpid(), now, "", now, 0, 0, shard[:LONGEST], host, node[:LONGEST])

    def now(self, case: str = "", done: int = 0, planned: int = 0) -> None:
        """What is measured from now on, and how many cases have ended of how many."""
        old, case = self._part, case[:LONGEST]
        since = old.since_s if case == old.case else time.time()
        self._part = replace(old, case=case, since_s=since, done=done, planned=planned)
        self._show(json.dumps(asdict(self._part)))

    @abstractmethod
    def _show(self, document: str) -> None:
        """Put it where others look; where that fails, the last one goes on saying that we live."""

    @abstractmethod
    def others(self) -> tuple[Part, ...]:
        """The other living programs of the run. Asked once our own sign is there: of two programs
        that begin at the same time at least one sees the other."""

    @abstractmethod
    def end(self) -> None:
        """Take the sign away."""


class FileHeartbeat(Heartbeat):
    """Each change is a new file, locked before it takes the place of the last one: so whoever
    opens the name finds a whole file, and finds it locked."""

    def __init__(self, folder: Path, run_id: str, shard: str = "", node: str = "") -> None:
        super().__init__(run_id, shard, node)
        _sweep(folder)
        self._folder = folder
        self._path = folder / f"{quote(run_id, safe='')}{_APART}{self._token}{_NAME}"
        self._held: int | None = None

    def _show(self, document: str) -> None:
        try:
            held = self._written(document.encode())
        except OSError:
            return
        if self._held is not None:
            os.close(self._held)
        self._held = held

    def others(self) -> tuple[Part, ...]:
        """By their files."""
        return tuple(_living(self._folder, self._run_id, besides=self._path))

    def end(self) -> None:
        """Take the sign away, and the folder with the last one."""
        if self._held is None:
            return
        _remove(self._path)
        os.close(self._held)
        self._held = None
        with suppress(OSError):  # somebody else's sign may be in it
            self._folder.rmdir()

    def _written(self, data: bytes) -> int:
        """The locked file, under its name."""
        handle, part = self._new_part()
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(handle, data)
            os.fchmod(handle, 0o644)  # whoever may read the database may know
            os.replace(part, self._path)
        except OSError:
            _remove(part)
            os.close(handle)
            raise
        return handle

    def _new_part(self) -> tuple[int, str]:
        for _ in range(_TRIES):
            try:
                self._folder.mkdir(exist_ok=True)
                return tempfile.mkstemp(prefix=_PART, dir=self._folder)
            except FileNotFoundError:
                continue  # another run has just ended and taken the empty folder away
        raise FileNotFoundError(self._folder)


def folder_of(location: Location | Path) -> Path:
    """`torchstone.db.alive`, beside `torchstone.db`."""
    path = location.path if isinstance(location, Location) else location
    return path.with_name(path.name + SUFFIX)


@contextmanager
def start_heartbeat(
    location: Location | Path, run_id: str, shard: str = "", node: str = ""
) -> Iterator[Heartbeat]:
    """Show that the run is being measured, until the end of the block."""
    own: Heartbeat
    if isinstance(location, Location) and location.url:
        from torchstone.store.postgres import ServerHeartbeat

        own = ServerHeartbeat(location, run_id, shard, node)
    else:
        own = FileHeartbeat(folder_of(location), run_id, shard, node)
    own.now()
    try:
        yield own
    finally:
        own.end()


def running_ids(location: Location | Path) -> frozenset[str]:
    """The runs that a living program is measuring into this database."""
    return frozenset(run_id for run_id, _ in living(location))


def living(location: Location | Path) -> Iterator[tuple[str, Part]]:
    """Run and sign of every living program."""
    for run_id, path in _signs(folder_of(location)):
        if (part := _look(path)) is not None:
            yield run_id, part


def told(signs: Iterable[tuple[str, Part]]) -> list[tuple[str, int, str]]:
    """Of living programs, what changes as they get on."""
    return sorted((run_id, part.done, part.case) for run_id, part in signs)


def progress(location: Location | Path, run_id: str) -> Progress | None:
    """How far the living programs of a run are; None where there is none."""
    return progress_of(run_id, _living(folder_of(location), run_id))


def progress_of(run_id: str, parts: Iterable[Part]) -> Progress | None:
    """These programs, the longest at it first."""
    found = sorted(parts, key=lambda one: (one.started_s, one.pid))
    return Progress(run_id, tuple(found)) if found else None


def _living(folder: Path, run_id: str, besides: Path | None = None) -> Iterator[Part]:
    for named, path in _signs(folder):
        if named == run_id and path != besides and (part := _look(path)) is not None:
            yield part


def _signs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Run and file of everything that is named like a sign."""
    for path in _entries(folder):
        name, apart, _ = path.name.rpartition(_APART)
        if apart and path.name.endswith(_NAME):
            yield unquote(name), path


def _entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return [Path(entry.path) for entry in islice(found, MOST_FILES)]
    except OSError:
        return []


def _look(path: Path) -> Part | None:
    """What the living owner of a file says; None where the owner is dead."""
    for _ in range(_TRIES):
        with _opened(path) as handle:
            if handle is None:
                return None
            if _is_held(handle):
                return _read(handle)
            if _is_at(handle, path):
                return None
        # It was replaced between opening and asking: its owner lives. Look at the new one.
    return Part()


def _sweep(folder: Path) -> None:
    """Remove what dead programs left behind."""
    for path in _entries(folder):
        whole = path.name.endswith(_NAME)
        if not whole and not path.name.startswith(_PART):
            continue
        with _opened(path) as handle:
            if handle is None:
                continue
            if not whole and time.time() - os.fstat(handle).st_mtime <= _STALE_S:
                continue
            # An owner holds the file under its name at all times. Asked in this order, a file that
            # is not held and still has its name can have no living owner.
            if not _is_held(handle) and _is_at(handle, path):
                _remove(path)


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """A regular file, open for reading; None for anything else, a pipe or a link among them."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield handle if stat.S_ISREG(os.fstat(handle).st_mode) else None
    finally:
        os.close(handle)


def _is_held(handle: int) -> bool:
    """Whether its owner has it locked. Those who ask share their lock, so they never see each
    other."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False


def _remove(path: Path | str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _read(handle: int) -> Part:
    try:
        return part_of(os.pread(handle, MOST_BYTES, 0))
    except OSError:
        return Part()


def has_ended(part: Part) -> bool:
    """Whether it was a program of this machine that is no more."""
    if not part.pid or part.host != socket.gethostname():
        return False
    try:
        os.kill(part.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's
        return False
    return False


def part_of(document: str | bytes) -> Part:
    """What it says, as far as it makes sense."""
    try:
        data = json.loads(document)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        return Part()
    return Part(**{one.name: _sane(data.get(one.name), one.default) for one in fields(Part)})


def _sane(value: Any, default: Any) -> Any:
    """The value, if it is of the kind of the default and within reason."""
    if isinstance(default, str):
        return value[:LONGEST] if isinstance(value, str) else default
    largest = _MOST_CASES if isinstance(default, int) else _LAST_SECOND
    kinds = (int,) if isinstance(default, int) else (int, float)
    return type(default)(value) if type(value) in kinds and 0 <= value <= largest else default

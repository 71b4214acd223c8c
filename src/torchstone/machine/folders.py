"""Temporary folders that do not outlive their program, however it ends.

A folder holds a file that its program keeps locked. The kernel drops the lock when the program
ends, by `kill -9` too, so a folder whose file is not locked has no owner: whoever makes the next
folder removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "torchstone-"
LOCK = ".torchstone-lock"
MOST_SWEPT = 1000
"""At one start: a machine that has collected more has them removed by and by."""


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder of this program, gone afterwards; those of programs that were killed go now."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock: int | None = None
    try:
        lock = _locked(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """The file has its name only once it is locked: nobody finds it without a lock before."""
    part = folder / f"{LOCK}.part"
    try:
        descriptor = os.open(part, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # no space left: whoever wants to write there will say so
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(part, folder / LOCK)
    except OSError:  # a file system without locks: such a folder is never swept
        os.close(descriptor)
        return None
    return descriptor


def sweep() -> int:
    """Remove folders of ours whose program is gone; returns how many."""
    removed = 0
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _remove_unowned(Path(entry.path)):
                removed += 1
                if removed == MOST_SWEPT:
                    break
    return removed


def _remove_unowned(folder: Path) -> bool:
    """Only a folder of this user, only with our file in it, and only where nobody holds that."""
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # its owner lives, or another program removes it now
        return False
    finally:
        os.close(lock)
    return True

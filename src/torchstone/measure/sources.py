"""Which code a process runs: hashes of the user's own source files, so that an edit is noticed.

Every process of an arm imports the target anew, from the file as it is then. These are the target's
own file and the modules imported from its folder; what is installed does not change by the minute.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from typing import Any

from torchstone.records import ArmSpec
from torchstone.workloads.target import parse_target

GONE = "gone"
HASH_DIGITS = 16
_INSTALLED = ("site-packages", "dist-packages")
_OURS = "torchstone"


class Sources:
    """What was found of each file when it was first looked at: at best, just before its import."""

    def __init__(self, arm: ArmSpec) -> None:
        self._here = os.getcwd()  # before user code may change it
        self._target = None if arm.statement is not None else parse_target(arm.target)
        self._found: dict[str, str] = {}
        self.look()

    def look(self) -> Mapping[str, str]:
        """Hash what has been imported since; returns all by path."""
        for path in self._files():
            if path not in self._found:
                self._found[path] = hash_file(path)
        return dict(self._found)

    def _files(self) -> Iterator[str]:
        target = self._target
        if target is None or target.kind == "suite":
            return  # statements and models of suites have no file of the user's own
        if target.kind == "file":
            own = os.path.normpath(os.path.join(self._here, target.place))
        else:
            names = (target.place.partition(".")[0], target.place)
            files = [self._file_of(sys.modules.get(name)) for name in names]
            own = files[0] or files[1]  # a package without an `__init__.py` has no file
        if not own:
            return
        yield own
        folder = os.path.join(os.path.dirname(own), "")
        for name, module in list(sys.modules.items()):
            file = self._file_of(module)
            if file.startswith(folder) and not _is_installed(file) and name.split(".")[0] != _OURS:
                yield file

    def _file_of(self, module: Any) -> str:
        """The source file; not what others have made of it (`.so`), which may be made anew."""
        file = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(file, str) or not file.endswith(".py"):
            return ""
        return os.path.normpath(os.path.join(self._here, file))


def _is_installed(file: str) -> bool:
    library = os.path.join(sysconfig.get_paths()["stdlib"], "")
    return file.startswith(library) or any(part in _INSTALLED for part in file.split(os.sep))


def hash_file(path: str) -> str:
    """Of its content as it is now."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:HASH_DIGITS]
    except OSError:
        return GONE


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """The names of files that both know and that differ."""
    names = {os.path.basename(p) for p, found in before.items() if after.get(p, found) != found}
    return tuple(sorted(names))

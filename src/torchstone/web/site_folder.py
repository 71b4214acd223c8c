"""The folder that a site is written into: it knows what the export before left there.

Pages of an earlier export stay readable for whoever knows their address, so what is not written
again is removed. Only files that the list in the folder names are touched, and only in the places
where a site has any: somebody's own files stay, and no name or link leads out of the folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TextIO

from torchstone.records import UsageError

LIST = "torchstone-site.txt"
"""In the folder: the name of every file that an export wrote, one a line."""
INSIDE = ("", "assets", "data")
"""Where files of a site are."""
LONGEST_LIST = 1 << 26
"""Bytes of a list that one of our exports could have written."""
_NAME = re.compile(r"(?:(?P<folder>[a-z]+)/)?[A-Za-z0-9_][A-Za-z0-9._-]*")


class SiteFolder:
    """A folder that is being written to, with `write` and at the end `finish`.

    A name is on the list before its file is there, and the names of the export before stay on it
    until `finish`: after an export that was stopped, the next one still knows of every file.
    """

    def __init__(self, out: Path, force: bool = False) -> None:
        self.out = out
        self._prepare(force)
        self._before = _listed(out / LIST)
        self._written: dict[str, None] = {}
        self._replace_list(self._before)
        self._list: TextIO = (out / LIST).open("a", encoding="utf-8")

    def _prepare(self, force: bool) -> None:
        out = self.out
        if out.exists() and not out.is_dir():
            raise UsageError(f"{out} is not a folder.", "Name a folder for the site.")
        if out.exists() and any(out.iterdir()) and not force:
            raise UsageError(f"{out} is not empty.", "Choose another folder, or add --force.")
        for name in INSIDE[1:]:
            if (out / name).is_symlink():
                raise UsageError(
                    f"{out / name} is a link, and what is written there would be elsewhere.",
                    "Remove it, or choose another folder.",
                )
        for name in INSIDE:
            (out / name).mkdir(parents=True, exist_ok=True)

    def write(self, name: str, content: bytes) -> None:
        """Write one file of the site."""
        if not _is_ours(name):
            raise ValueError(f"{name!r} is not a name for a file of a site")
        if name not in self._written:
            self._written[name] = None
            self._list.write(f"{name}\n")
            self._list.flush()
        path = self.out / name
        if path.is_symlink():  # it would lead elsewhere
            path.unlink()
        path.write_bytes(content)

    def finish(self) -> int:
        """Remove what the export before wrote and this one did not; how many files."""
        removed = 0
        for name in self._before:
            path = self.out / name
            if name in self._written or path.is_symlink() or not path.is_file():
                continue
            path.unlink()
            removed += 1
        self.close()
        self._replace_list(tuple(self._written))
        return removed

    def close(self) -> None:
        """Let go of the list; after an export that failed, too."""
        self._list.close()

    def _replace_list(self, names: tuple[str, ...]) -> None:
        """All at once, and a link by that name is replaced, not followed."""
        part = self.out / f"{LIST}.part"
        part.unlink(missing_ok=True)
        part.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        os.replace(part, self.out / LIST)


def _listed(path: Path) -> tuple[str, ...]:
    """The names on the list that can be of ours; none where there is no list."""
    try:
        if path.is_symlink() or path.stat().st_size > LONGEST_LIST:
            return ()
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ()
    return tuple(dict.fromkeys(name for name in text.splitlines() if _is_ours(name)))


def _is_ours(name: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and (found["folder"] or "") in INSIDE and name != LIST

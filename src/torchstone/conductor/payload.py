"""The folder that a worker has on its path: our stdlib-only rooms and nothing else of ours.

Links, not copies, so that the interpreter's compiled files are found; plus the entry points of the
built-in plug-ins, so that they come through the same door as everybody's.
"""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from pathlib import Path

ROOMS = ("records", "machine", "workloads", "variants", "measure")


def make_payload(folder: Path) -> Path:
    """Lay out the payload in `folder`; returns the script to start."""
    package = Path(__file__).resolve().parent.parent
    inside = folder / "torchstone"
    inside.mkdir(parents=True)
    (inside / "__init__.py").symlink_to(package / "__init__.py")
    for room in ROOMS:
        _link_room(package / room, inside / room)
    info = folder / "torchstone-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torchstone\nVersion: 0\n")
    (info / "entry_points.txt").write_text(_entry_points())
    # A copy: Python would take the folder behind a link for the script's own.
    return Path(shutil.copy(package / "measure" / "bootstrap.py", folder / "worker.py"))


def _link_room(source: Path, link: Path) -> None:
    """`machine/calibrate` needs torch and stays at home; other rooms go whole."""
    if not (source / "calibrate").exists() and not (source / "calibrate.py").exists():
        os.symlink(source, link)
        return
    link.mkdir()
    for entry in source.iterdir():
        if not entry.name.startswith("calibrate"):
            os.symlink(entry, link / entry.name)


def _entry_points() -> str:
    points = metadata.distribution("torchstone").entry_points
    groups: dict[str, list[str]] = {}
    for point in points:
        if point.group.startswith("torchstone.") and _travels(point.value):
            groups.setdefault(point.group, []).append(f"{point.name} = {point.value}")
    return "".join(f"[{group}]\n" + "\n".join(lines) + "\n" for group, lines in groups.items())


def _travels(value: str) -> bool:
    return value.split(":")[0].split(".")[1] in ROOMS

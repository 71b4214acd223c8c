"""Hyper-threads of one core are one core."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone.machine.hardware import SIBLINGS, physical_cores


def tree(folder: Path, siblings: dict[int, str]) -> str:
    """The part of /sys that tells of siblings."""
    for core, text in siblings.items():
        path = folder / f"cpu{core}" / SIBLINGS
        path.parent.mkdir(parents=True)
        path.write_text(f"{text}\n", encoding="ascii")
    return str(folder)


FAR = {core: f"{core % 4},{core % 4 + 4}" for core in range(8)}
NEAR = {core: f"{core - core % 2}-{core - core % 2 + 1}" for core in range(8)}
NONE = {core: str(core) for core in range(8)}


@pytest.mark.parametrize(
    ("siblings", "allowed", "cores"),
    [
        (FAR, range(8), 4),
        (NEAR, range(8), 4),
        (NONE, range(8), 8),
        (FAR, (0, 1, 4), 2),
        (FAR, (2, 3), 2),  # the siblings are somebody else's
        (FAR, (6,), 1),
        ({}, range(8), None),
    ],
)
def test_each_physical_core_counts_once(
    siblings: dict[int, str], allowed: range, cores: int | None, tmp_path: Path
) -> None:
    assert physical_cores(allowed, tree(tmp_path, siblings)) == cores


def test_a_core_of_which_nothing_is_said_is_one_of_its_own(tmp_path: Path) -> None:
    assert physical_cores((0, 1, 9), tree(tmp_path, {0: "0-1", 1: "0-1"})) == 2

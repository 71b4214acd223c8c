"""Cores that may be used: bound to, and granted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchstone.machine.processes import usable_cores


@pytest.mark.parametrize(
    ("granted", "cores"),
    [
        ("max 100000", 8),
        ("6400000 100000", 8),
        ("250000 100000", 2),
        ("150000 100000", 1),
        ("30000 100000", 1),
    ],
)
def test_a_quota_grants_no_more_than_its_whole_cores(
    granted: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    (tmp_path / "cpu.max").write_text(f"{granted}\n")
    assert usable_cores([str(tmp_path)]) == cores

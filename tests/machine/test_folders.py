"""Temporary folders: gone at the end, swept where the end was `kill -9`, else left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.targets.support import ROOT
from torchstone.machine import folders

OWNER = """
import sys
from torchstone.machine.folders import own_folder
with own_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def owner() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_is_gone_at_the_end_also_by_an_error() -> None:
    def fail() -> None:
        with folders.own_folder() as folder:
            made.append(folder)
            (folder / "file").write_text("x")
            raise ZeroDivisionError

    made: list[Path] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    assert not made[0].exists()


def test_a_folder_of_a_killed_program_is_swept_and_a_living_one_s_is_not() -> None:
    dead, left = owner()
    living, kept = owner()
    dead.kill()
    dead.communicate()  # closes its pipes
    assert left.exists()
    assert folders.sweep() == 1
    assert not left.exists()
    assert kept.exists()
    living.communicate("")
    assert not kept.exists()


def test_nothing_else_is_swept(temporary: Path) -> None:
    """A folder without our file, a link, a file of that name, one that points elsewhere."""
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / folders.LOCK).write_text("")
    (temporary / "torchstone-link").symlink_to(elsewhere)
    (temporary / "torchstone-file").write_text("")
    (temporary / "torchstone-without").mkdir()
    (temporary / "torchstone-pointing").mkdir()
    (temporary / "torchstone-pointing" / folders.LOCK).symlink_to(elsewhere / folders.LOCK)
    before = sorted(temporary.rglob("*"))
    assert folders.sweep() == 0
    assert sorted(temporary.rglob("*")) == before

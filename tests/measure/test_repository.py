"""The commit on record is that of the code which was imported."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from torchstone.conductor.case import Settings
from torchstone.conductor.launch import CaseContext, Launcher
from torchstone.conductor.solo import solo_pass
from torchstone.conductor.state import ArmState
from torchstone.records import ArmSpec

TARGET = """
import os

def make():
    os.chdir("/")
    return (lambda x: x), (lambda seed: (seed,))
"""

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def repository(folder: Path, *files: str) -> str:
    """A repository with those files; returns its commit."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(TARGET)
    name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    for words in (("init", "-q"), ("add", "."), (*name, "commit", "-qm", str(folder))):
        subprocess.run(["git", *words], cwd=folder, check=True, env=env)
    said = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, check=True, env=env, capture_output=True
    )
    return said.stdout.decode().strip()


def commit_of(target: str, folder: Path) -> str | None:
    state = ArmState(ArmSpec("a", target))
    folder.mkdir()
    solo_pass(CaseContext(Launcher(folder), Settings()), state)
    assert state.solo is not None, state.detail
    git = state.solo.environment.git
    return git.commit if git else None


@pytest.mark.slow
def test_it_is_that_of_the_module_and_not_of_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = repository(tmp_path / "here", "mine.py", "inner/near.py")
    there = repository(tmp_path / "there", "pkg/__init__.py", "pkg/mod.py")
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "nowhere.py").write_text(TARGET)
    monkeypatch.chdir(tmp_path / "here")
    paths = [tmp_path / "there", tmp_path / "here", tmp_path / "loose"]
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, paths)))
    assert commit_of("pkg.mod:make", tmp_path / "1") == there
    assert commit_of("inner/near.py:make", tmp_path / "2") == here
    assert commit_of("mine:make", tmp_path / "3") == here
    assert commit_of("nowhere:make", tmp_path / "4") is None

"""Profiles: a row and a file beside the database, whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from torchstone.records import (
    ArmSpec,
    CallTree,
    Frame,
    Profile,
    Thread,
    TorchstoneError,
    UsageError,
)
from torchstone.store import open_store, profiles

KILLED = """
import os, signal, sys
from pathlib import Path
from torchstone.store import profiles
def stop(*_):
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = stop
profiles.put(Path(sys.argv[1]), b"x" * 100_000)
"""


def profile(name: str = "p-1") -> Profile:
    return Profile(
        name,
        "2026-11-16T00:00:00+00:00",
        "count",
        "cProfile",
        frames=tuple(Frame(f"function {i}", "model.py", i) for i in range(3)),
        threads=(Thread("main", critical=True),),
        tree=CallTree("seconds", (-1, 0, 1), (0, 1, 2), (0.1, 0.2, 0.3), (0, 0, 0), (1, 2, 3)),
        machine_id="m-1",
    )


def test_profiles_come_back_equal(db: Path) -> None:
    with open_store(str(db)) as store:
        size = store.save_profile(profile("p-1"))
        store.save_profile(profile("p-2"), "a1b2c3")
        assert size > 0
        with pytest.raises(UsageError, match="already stored"):
            store.save_profile(profile("p-1"))
    with open_store(str(db), read_only=True) as store:
        assert store.load_profile("p-1") == profile("p-1")
        assert store.load_profile("last") == profile("p-2")
        with pytest.raises(UsageError, match="Several profiles begin"):
            store.load_profile("p")
        with pytest.raises(UsageError, match="There is no profile 'nobody'"):
            store.load_profile("nobody")
        assert [one.id for one in store.list_profiles()] == ["p-2", "p-1"]
        (of_result,) = store.list_profiles(result="a1b2c3")
        assert (of_result.id, of_result.how, of_result.tool) == ("p-2", "count", "cProfile")


def test_profiles_are_found_by_the_work_that_they_are_of(db: Path) -> None:
    arm = ArmSpec("inductor", "timm:resnet18@small", "inductor", threads=1)
    here = replace(profile(), arm=arm)
    with open_store(str(db)) as store:
        store.save_profile(replace(here, id="same", arm=replace(arm, name="inductor #2", seed=7)))
        store.save_profile(replace(here, id="eager", arm=replace(arm, variant="eager")))
        store.save_profile(replace(here, id="threads", arm=replace(arm, threads=8)))
        store.save_profile(replace(here, id="elsewhere", machine_id="m-2"))
        store.save_profile(profile("program"))
        store.save_profile(profile("attached"), "a1b2c3")

        def found(*arms: ArmSpec, limit: int = 20) -> list[str]:
            wanted = [(one, "m-1") for one in arms]
            return [one.id for one in store.profiles_of("a1b2c3", wanted, limit)]

        assert found(arm) == ["attached", "same"]
        assert found(arm, replace(arm, variant="eager")) == ["attached", "eager", "same"]
        assert found(arm, replace(arm, variant="eager"), limit=2) == ["attached", "eager"]
        assert found(replace(arm, mode="training")) == ["attached"]
        assert found(replace(arm, env=(("A", "b"),))) == ["attached"]
        # A profile is of one shape, whatever the samples went through.
        assert found(replace(arm, shapes=4)) == ["attached", "same"]
        assert store.load_profile("same").arm == replace(arm, name="inductor #2", seed=7)
        listed = {one.id: (one.target, one.variant) for one in store.list_profiles()}
        assert listed["eager"] == ("timm:resnet18@small", "eager")
        assert listed["program"] == ("", "")


@pytest.mark.sqlite_only
def test_a_missing_or_altered_file_is_said(db: Path) -> None:
    with open_store(str(db)) as store:
        store.save_profile(profile())
        (kept,) = (p for p in profiles.folder_of(db).rglob("*") if p.is_file())
        kept.write_bytes(kept.read_bytes() + b"!")
        with pytest.raises(TorchstoneError, match="is not what was stored"):
            store.load_profile("p-1")
        kept.unlink()
        with pytest.raises(TorchstoneError, match="cannot be read"):
            store.load_profile("p-1")


def test_the_same_bytes_are_kept_once(tmp_path: Path) -> None:
    assert profiles.put(tmp_path, b"abc") == profiles.put(tmp_path, b"abc")
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) == 1
    assert profiles.get(tmp_path, profiles.put(tmp_path, b"abc")) == b"abc"


def test_a_kill_in_the_middle_leaves_no_name(tmp_path: Path, python_env: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], env=python_env, check=False
    )
    assert done.returncode == -signal.SIGKILL
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.name.startswith(".part-") for path in left)
    digest = profiles.put(tmp_path, b"x" * 100_000)
    assert profiles.get(tmp_path, digest) == b"x" * 100_000


def test_no_part_is_left_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        profiles.put(tmp_path, b"abc")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_two_profiles_of_one_content_share_a_file_but_not_a_row(db: Path) -> None:
    with open_store(str(db)) as store:
        store.save_profile(profile("p-1"))
        store.save_profile(replace(profile("p-2"), label="again"))
        assert len(store.list_profiles()) == 2

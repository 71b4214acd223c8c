"""The compiler's one-time cost is paid once for each torch, compiler and kind of compilation."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchstone.conductor import Settings, solo
from torchstone.conductor.launch import CaseContext
from torchstone.conductor.solo import Mark, mark_of
from torchstone.records import ArmSpec

HEADER = "abc.h.gch"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A machine with a torch and a compiler that can be told what version they are."""
    torch = tmp_path / "site" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise SystemExit('it is not to be imported')")
    (torch / "version.py").write_text("__version__ = '2.12'")
    tell_compiler(tmp_path, "12.2")
    return {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(tmp_path / "site"),
        "CXX": str(tmp_path / "c++"),
    }


def tell_compiler(folder: Path, version: str) -> None:
    (folder / "c++").write_text(f"#!/bin/sh\necho g++ {version}\n")
    (folder / "c++").chmod(0o755)


def marked(env: dict[str, str], variant: str = "inductor") -> Mark:
    found = mark_of(sys.executable, env, ArmSpec("arm", "x.py:make", variant=variant))
    assert found is not None
    return found


def warmed(env: dict[str, str]) -> Mark:
    """As after a warm-up that left a header."""
    mark = marked(env)
    mark.folder.mkdir(parents=True)
    (mark.folder / HEADER).touch()
    assert not mark.holds  # headers of something else are no sign
    mark.put()
    assert marked(env).holds
    return mark


def test_a_mark_holds_for_variants_of_one_kind_of_compilation(env: dict[str, str]) -> None:
    warmed(env)
    assert marked(env, "inductor+freezing").holds
    assert not marked(env, "aoti").holds


def test_a_new_torch_pays_anew(env: dict[str, str], tmp_path: Path) -> None:
    warmed(env)
    (tmp_path / "site" / "torch" / "version.py").write_text("__version__ = '2.13'")
    assert not marked(env).holds


def test_a_new_compiler_pays_anew(env: dict[str, str], tmp_path: Path) -> None:
    warmed(env)
    tell_compiler(tmp_path, "13.1")
    assert not marked(env).holds


def test_headers_that_were_removed_are_paid_for_anew(env: dict[str, str]) -> None:
    mark = warmed(env)
    (mark.folder / "later.h.gch").touch()
    assert mark.holds
    (mark.folder / HEADER).unlink()
    assert not mark.holds


@pytest.mark.parametrize("text", ["", "{", "{}", "[" * 100_000, "x" * 1_000_001])
def test_a_mark_that_says_nothing_is_none(env: dict[str, str], text: str) -> None:
    mark = warmed(env)
    mark.path.write_text(text)
    assert not mark.holds


def test_where_nothing_can_be_told_there_is_no_mark(env: dict[str, str]) -> None:
    assert mark_of("/no/python", env, ArmSpec("arm", "x.py:make", variant="inductor")) is None


class Launcher:
    """Starts workers that leave a header behind, the first time."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env, self.started = env, 0

    def environment(self, arm: ArmSpec, cache: str) -> dict[str, str]:
        return self.env

    def interpreter(self, arm: ArmSpec) -> str:
        return sys.executable

    def start(self, arm: ArmSpec, cache: str) -> Any:
        self.started += 1
        folder = marked(self.env, arm.variant).folder
        folder.mkdir(parents=True, exist_ok=True)

        def ask_for(kind: type[int], command: Any, patience: Any) -> int:
            (folder / f"{arm.variant}.h.gch").touch()
            return 7

        return SimpleNamespace(ask_for=ask_for, kill=lambda: None)


def test_what_was_paid_is_told_once(env: dict[str, str], tmp_path: Path) -> None:
    launcher: Any = Launcher(env)

    def paid(variant: str) -> tuple[int | None, int]:
        spec = ArmSpec("arm", "x.py:make", variant=variant)
        return solo.warm_toolchain(CaseContext(launcher, Settings()), spec), launcher.started

    assert paid("eager") == (None, 0)
    assert paid("inductor") == (7, 1)
    assert paid("inductor") == (None, 1)
    assert paid("aoti") == (7, 2)
    # Another torch whose headers turn out to be there already: looked for, and nothing paid.
    (tmp_path / "site" / "torch" / "version.py").write_text("__version__ = '2.13'")
    assert paid("inductor") == (None, 3)
    assert paid("inductor") == (None, 3)

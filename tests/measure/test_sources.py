"""Which files are the user's own, and that the first look at each counts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from torchstone.measure.arm import GONE, Sources, changed, hash_file
from torchstone.records import ArmSpec, Statement


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with modules that were imported from it, and some that were not."""
    monkeypatch.chdir(tmp_path)
    places = {
        "model": "model.py",
        "layers.attention": "layers/attention.py",
        "numpy_like": ".venv/lib/python3.12/site-packages/numpy_like.py",
        "kernel": "kernel.so",
    }
    for name, place in places.items():
        file = tmp_path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        module = ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "odd", None)
    return tmp_path


@pytest.mark.parametrize("target", ["model.py:make", "model:make"])
def test_the_target_and_what_it_imports_from_its_folder(folder: Path, target: str) -> None:
    found = Sources(ArmSpec("a", target)).look()
    assert set(found) == {str(folder / "model.py"), str(folder / "layers/attention.py")}


def test_the_first_look_at_a_file_counts(folder: Path) -> None:
    sources = Sources(ArmSpec("a", "model.py:make"))
    before = sources.look()
    (folder / "model.py").write_text("another")
    assert sources.look() == before
    after = Sources(ArmSpec("a", "model.py:make")).look()
    assert changed(before, after) == ("model.py",)
    assert changed(before, before) == ()
    assert changed(before, {}) == ()
    (folder / "model.py").unlink()
    assert hash_file(str(folder / "model.py")) == GONE


@pytest.mark.parametrize(
    "arm",
    [ArmSpec("a", "timm:resnet18"), ArmSpec("a", statement=Statement("pass"))],
)
def test_what_has_no_file_of_the_users_own(folder: Path, arm: ArmSpec) -> None:
    assert Sources(arm).look() == {}


def checkout(top: Path, monkeypatch: pytest.MonkeyPatch, lib: str, place: str) -> str:
    """The digest of an arm that runs in `benchmarks/` of a checkout, and imports `lib`."""
    (top / "benchmarks").mkdir(parents=True)
    (top / ".git").write_text("gitdir: elsewhere")
    (top / "benchmarks" / "model.py").write_text("import lib")
    (top / place).mkdir(parents=True, exist_ok=True)
    (top / place / "lib.py").write_text(lib)
    module = ModuleType("lib")
    module.__file__ = str(top / place / "lib.py")
    monkeypatch.setitem(sys.modules, "lib", module)
    target = str(top / "benchmarks" / "model.py") + ":make"
    return Sources(ArmSpec("a", target, folder=str(top / "benchmarks"))).digest()


def test_an_arm_in_a_part_of_its_checkout_is_made_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cd benchmarks; torchstone check model.py:make`, of a change in src/."""
    base = checkout(tmp_path / "base", monkeypatch, "x = 1", "src")
    same = checkout(tmp_path / "same", monkeypatch, "x = 1", "src")
    head = checkout(tmp_path / "head", monkeypatch, "x = 2", "src")
    assert base == same != head


def test_what_is_installed_inside_the_checkout_has_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ".venv/lib/python3.12/site-packages"
    assert checkout(tmp_path / "base", monkeypatch, "x = 1", place) == ""

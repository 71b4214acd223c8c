"""What the package asks of the world, and what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import torchstone
from tests.structure.places import ROOT

# tomllib came with 3.11; on 3.10 pytest itself brings tomli.
tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")

NAME = re.compile(r"^[A-Za-z0-9._-]+")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)["project"]
    return table


def names(requirements: list[str]) -> set[str]:
    found = (NAME.match(text) for text in requirements)
    return {match.group().lower() for match in found if match}


def pins() -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition("==")
            table.setdefault(name, []).append(rest)
    return table


def test_installing_never_brings_torch(project: dict[str, Any]) -> None:
    base = names(project["dependencies"])
    assert {"click", "numpy", "sqlalchemy"} <= base
    # Nor anything that asks for torch in its turn.
    assert base & {"torch", "torchvision", "timm", "transformers", "accelerate"} == set()
    assert names(project["optional-dependencies"]["torch"]) == {"torch"}


def test_all_that_make_installs_is_pinned(project: dict[str, Any]) -> None:
    extras = project["optional-dependencies"]
    wanted = names(project["dependencies"]) | names(extras["dev"]) | names(extras["torch"])
    assert wanted - set(pins()) == set()


def test_a_package_pinned_twice_says_which_python_each_is_for() -> None:
    for name, versions in pins().items():
        if len(versions) > 1:
            assert all("; python_version" in version for version in versions), name


def test_the_version_is_said_once(project: dict[str, Any]) -> None:
    assert project["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", torchstone.__version__)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in changelog


def test_the_types_travel() -> None:
    assert (Path(torchstone.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize(
    "goal", ["help", "run", "test", "test-slow", "bench", "lint", "format", "clean", ".venv"]
)
def test_make_knows_its_goals(goal: str) -> None:
    """A dry run: make finds the goal and everything it needs, and does nothing."""
    done = subprocess.run(
        ["make", "--dry-run", goal], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_make_refuses_an_old_python(tmp_path: Path) -> None:
    """A stand-in that fails the version question, as an old or missing interpreter does."""
    old = tmp_path / "python3.8"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(
        ["make", ".venv", f"PYTHON={old}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "needs Python 3.10 or newer" in done.stderr
    assert not (tmp_path / ".venv").exists()

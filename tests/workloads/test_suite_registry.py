"""A plug-in that is broken costs the other suites nothing, and is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.support import HONEST, ROOT, torchstone
from torchstone.store import open_store

LOST = "The suite aaa cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """With a package whose suite cannot be imported, the first in order of name."""
    info = tmp_path / "site" / "broken_suite-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-suite\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchstone.suites]\naaa = no_such_module:SUITE\n")
    return f"{info.parent}:{ROOT / 'src'}:{ROOT}"


def said(text: str) -> str:
    return " ".join(text.split())


def test_lists_go_on_and_name_it(path: str) -> None:
    listed = torchstone("list", "suites", PYTHONPATH=path)
    assert listed.returncode == 0, listed.stderr
    assert "huggingface" in listed.stdout
    assert f"aaa: {LOST}. Mend or remove the package broken-suite." in said(listed.stdout)
    models = torchstone("list", "models", PYTHONPATH=path)
    assert models.returncode == 0, models.stderr
    assert "BertForMaskedLM" in models.stdout
    assert LOST in models.stderr


def test_other_suites_run_by_name_by_prefix_and_from_a_file(path: str, tmp_path: Path) -> None:
    toys = tmp_path / "toys.toml"
    toys.write_text(f'[[model]]\nname = "one"\ntarget = "{HONEST}"\n')
    words = ("--only", "BertForMaskedLM", "--only", "one", "--tier", "full", "--variants", "eager")
    later = ("--total-budget", "1us", "--db", "kept.db")
    done = torchstone(
        "run", "huggingface", "hf", str(toys), *words, *later, cwd=tmp_path, PYTHONPATH=path
    )
    assert done.returncode == 1, done.stderr  # planned, stored and left: there was no time
    with open_store(str(tmp_path / "kept.db"), read_only=True) as store:
        plan = store.run_view("last").run.plan
    assert [case.target for case in plan] == ["hf:BertForMaskedLM@small", HONEST]


@pytest.mark.parametrize("name", ["aaa", "aab"])
def test_who_asks_for_it_is_told(path: str, name: str, tmp_path: Path) -> None:
    done = torchstone("run", name, cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 2
    assert LOST in said(done.stderr)
    assert "broken-suite" in done.stderr
    assert "Traceback" not in done.stderr

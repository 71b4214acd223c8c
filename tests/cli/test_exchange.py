"""`export` and `import` as they are typed: out, in again, and out once more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.targets.support import HONEST, torchstone

FAST = ("--variants", "eager", "--budget-per-case", "0.2s", "--replicates", "1")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a real run."""
    folder = tmp_path_factory.mktemp("kept")
    one = f'[[model]]\nname = "one"\ntarget = "{HONEST}"\n'
    (folder / "toys.toml").write_text(f'name = "toys"\n{one}')
    done = torchstone("run", "toys.toml", *FAST, "--label", "ours", "--db", "kept.db", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def typed(kept: Path, *words: str) -> str:
    done = torchstone(*words, "--db", "kept.db", cwd=kept)
    assert done.returncode == 0, done.stderr
    return done.stdout


def exported(kept: Path, run: str, form: str, folder: str) -> dict[str, bytes]:
    written = typed(kept, "export", run, "--format", form, "--out", folder).split()
    assert written
    return {Path(name).name: (kept / name).read_bytes() for name in written}


def document(kept: Path, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(typed(kept, "show", run, "--json", "-"))
    return found


@pytest.mark.parametrize("form", ["dynamo-csv", "hud-v3"])
def test_a_run_goes_out_and_comes_back(kept: Path, form: str) -> None:
    files = exported(kept, "ours", form, f"{form}-1")
    paths = [str(Path(f"{form}-1") / name) for name in files]
    said = typed(kept, "import", form, *paths, "--label", form)
    assert ": 1 cases" in said
    ours, back = document(kept, "ours"), document(kept, form)
    assert back["run"]["origin"] == form
    names = ("suite", "model", "mode", "precision", "variant", "device", "outcome")
    assert [[case[name] for name in names] for case in back["cases"]] == [
        [case[name] for name in names] for case in ours["cases"]
    ]
    assert all(case["foreign"] and case["definition"] < 0 for case in back["cases"])
    assert exported(kept, form, form, f"{form}-2") == files


@pytest.mark.parametrize("form", ["dynamo-csv", "hud-v3"])
def test_a_file_of_another_kind_is_refused_and_nothing_is_written(
    kept: Path, form: str, tmp_path: Path
) -> None:
    done = torchstone("import", form, str(kept / "toys.toml"), "--db", "new.db", cwd=tmp_path)
    assert done.returncode == 2
    assert "toys.toml" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new.db").exists()

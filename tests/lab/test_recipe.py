"""The files that rebuild an environment: what is installed, from where, and what they leave out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.validate.cases import arm, environment, result
from torchstone.lab.repro import CPU_INDEX, write_recipe
from torchstone.records import Environment, UsageError

PACKAGES = {"torch": "2.13.0+cpu", "numpy": "2.3.1", "odd": "1.0+local.3", "bad; rm": "1"}


def written(
    folder: Path,
    *environments: Environment,
    words: tuple[str, ...] = ("torchstone", "bench", "m.py:make"),
) -> dict[str, str]:
    arms = [
        arm(name, environment=one)
        for name, one in zip(("eager", "py313"), environments, strict=False)
    ]
    made = replace(result(*arms), version="0.4.2", command=words)
    return {path.name: path.read_text() for path in write_recipe(made, str(folder), trust=True)}


def test_torchstone_and_the_measured_build_of_torch_are_installed(tmp_path: Path) -> None:
    files = written(tmp_path, environment(packages=PACKAGES))
    lines = files["requirements.lock"].splitlines()
    assert lines[1:] == [
        f"--extra-index-url {CPU_INDEX}",
        "numpy==2.3.1",
        "odd==1.0  # measured build: local.3",
        "torch==2.13.0+cpu",
        "torchstone==0.4.2",
    ]
    container = files["Containerfile"]
    assert "pip install --no-cache-dir -r /requirements.lock" in container
    assert container.index("requirements.lock") < container.index("CMD")
    assert 'CMD ["torchstone", "bench", "m.py:make"]' in container
    assert "another one" not in files["README.md"]


def test_other_builds_of_torch_need_no_other_index(tmp_path: Path) -> None:
    files = written(tmp_path, environment(packages={"torch": "2.13.0"}))
    assert CPU_INDEX not in files["requirements.lock"]
    assert "torch==2.13.0\n" in files["requirements.lock"]


def test_arms_of_another_interpreter_are_named(tmp_path: Path) -> None:
    newer = environment(python={"version": "3.13.1"}, packages=PACKAGES)
    readme = written(tmp_path, environment(packages=PACKAGES), newer)["README.md"]
    assert "- `py313`: Python 3.13.1, torch 2.13.0\n" in readme
    assert "`eager`:" not in readme


def test_files_that_no_checkout_has_are_named(tmp_path: Path) -> None:
    words = ("torchstone", "bench", "~/a.py:make", "--arm", "name=b target=/srv/b.py:make")
    readme = written(tmp_path / "1", environment(), words=words)["README.md"]
    assert "it was run on: ~/a.py:make, /srv/b.py:make.\n" in readme
    assert "was run on" not in written(tmp_path / "2", environment())["README.md"]


@pytest.mark.parametrize("name", ["README.md", "Containerfile", "requirements.lock"])
def test_files_that_are_there_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=f"{name} is in .* already") as refused:
        written(tmp_path, environment())
    assert "--force" in refused.value.remedy
    assert (tmp_path / name).read_text() == "mine"
    assert [one.name for one in tmp_path.iterdir()] == [name], "nothing was written beside it"


def test_a_link_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "recipe", tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "requirements.lock").symlink_to(elsewhere)
    with pytest.raises(UsageError):
        written(folder, environment())
    made = replace(result(arm("eager", environment=environment())), command=("torchstone",))
    write_recipe(made, str(folder), trust=True, force=True)
    assert not elsewhere.exists()
    assert not (folder / "requirements.lock").is_symlink()


def test_a_record_from_elsewhere_needs_trust(tmp_path: Path) -> None:
    made = replace(result(arm("eager", environment=environment())), origin="a stranger's file")
    with pytest.raises(UsageError) as refused:
        write_recipe(made, str(tmp_path))
    assert "--trust" in refused.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_neither_control_characters_nor_temporary_folders_are_written(tmp_path: Path) -> None:
    here = {"TORCHINDUCTOR_CACHE_DIR": "/tmp/of-this-machine/x", "OMP_NUM_THREADS": "2"}
    words = ("torchstone", "bench", "m\x1b[31m.py:make")
    files = written(tmp_path, environment(variables=here), words=words)
    assert "of-this-machine" not in "".join(files.values())
    assert 'ENV OMP_NUM_THREADS="2"' in files["Containerfile"]
    assert "\x1b" not in "".join(files.values())

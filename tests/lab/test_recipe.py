"""The files that rebuild an environment: what is installed, from where, and what they leave out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.validate.cases import arm, environment, result
from torchstone.lab.repro import CPU_INDEX, write_recipe
from torchstone.records import Environment

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
    return {path.name: path.read_text() for path in write_recipe(made, str(folder))}


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
    readme = written(tmp_path, environment(), words=words)["README.md"]
    assert "it was run on: ~/a.py:make, /srv/b.py:make.\n" in readme
    assert "was run on" not in written(tmp_path, environment())["README.md"]

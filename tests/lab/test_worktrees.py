"""Real repositories and work trees, and what is left of them after every kind of end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.structure.places import ROOT
from torchstone.lab import revisions
from torchstone.lab.revisions import (
    changed_files,
    find_commit,
    find_repository,
    import_path,
    merge_base,
    open_trees,
    working_copy,
)
from torchstone.records import NotRunError, UsageError


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in revisions.CI_BASES:
        monkeypatch.delenv(name, raising=False)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.py").write_text("x = 1\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def trees_of(folder: Path) -> list[str]:
    return [line for line in git(folder, "worktree", "list").splitlines() if "torchstone" in line]


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not inside a git repository"):
        find_repository(str(tmp_path))


def test_a_bare_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    with pytest.raises(UsageError, match="without a working copy"):
        find_repository(str(tmp_path / "bare.git"))


def test_no_such_revision(repository: Path) -> None:
    with pytest.raises(UsageError, match="no revision '--help'"):
        find_commit(find_repository(str(repository)), "--help")


def test_a_dirty_working_copy_is_measured_as_it_is(repository: Path) -> None:
    found = find_repository(str(repository))
    clean = working_copy(found)
    assert not clean.dirty
    (repository / "a.py").write_text("x = 2\n")
    (repository / "new.py").write_text("y = 1\n")
    (repository / "noise.log").write_text("ignored\n")
    before = git(repository, "status", "--porcelain")
    dirty = working_copy(found)
    assert dirty.dirty
    assert git(repository, "status", "--porcelain") == before
    assert changed_files(found, clean, dirty) == ("a.py", "new.py")
    assert git(repository, "show", f"{dirty.sha}:a.py") == "x = 2\n"


def test_conflicts_are_refused(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "other")
    (repository / "a.py").write_text("x = 2\n")
    git(repository, "commit", "-qam", "two")
    git(repository, "checkout", "-q", "main")
    (repository / "a.py").write_text("x = 3\n")
    git(repository, "commit", "-qam", "three")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "other")
    with pytest.raises(UsageError, match="merge conflicts"):
        working_copy(find_repository(str(repository)))


def test_the_base_is_where_the_branch_left(repository: Path, monkeypatch: object) -> None:
    start = git(repository, "rev-parse", "HEAD").strip()
    git(repository, "checkout", "-q", "-b", "change")
    git(repository, "commit", "-q", "--allow-empty", "-m", "mine")
    git(repository, "checkout", "-q", "main")
    git(repository, "commit", "-q", "--allow-empty", "-m", "theirs")
    git(repository, "checkout", "-q", "change")
    found = find_repository(str(repository))
    assert merge_base(found, working_copy(found)).sha == start


def test_a_target_branch_that_was_not_fetched_is_not_replaced(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull request into `release`: main would be the wrong base."""
    git(repository, "checkout", "-q", "-b", "change")
    git(repository, "commit", "-q", "--allow-empty", "-m", "mine")
    monkeypatch.setenv("GITHUB_BASE_REF", "release")
    found = find_repository(str(repository))
    with pytest.raises(UsageError, match=r"was not found \(origin/release\)"):
        merge_base(found, working_copy(found))


def test_a_branch_without_a_common_commit(repository: Path) -> None:
    git(repository, "checkout", "-q", "--orphan", "alone")
    git(repository, "commit", "-q", "-m", "alone")
    found = find_repository(str(repository))
    with pytest.raises(UsageError, match="main and working copy have no common commit") as error:
        merge_base(found, working_copy(found))
    assert "--base" in error.value.remedy


def test_on_main_there_is_nothing_to_compare(repository: Path) -> None:
    found = find_repository(str(repository))
    with pytest.raises(UsageError, match="nothing to compare"):
        merge_base(found, working_copy(found))


def test_a_shallow_clone_says_what_to_fetch(repository: Path, tmp_path: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", str(clone))
    with pytest.raises(UsageError) as error:
        find_commit(find_repository(str(clone)), "HEAD~1")
    assert "git fetch --unshallow" in error.value.remedy


def test_trees_are_gone_afterwards(repository: Path) -> None:
    found = find_repository(str(repository))
    with open_trees(found) as trees:
        one = trees.add("base", find_commit(found, "HEAD"))
        two = trees.add("head", find_commit(found, "HEAD"))
        assert len(str(one)) == len(str(two))
        assert (one / "a.py").exists()
        (one / "built").mkdir()
    assert trees_of(repository) == []
    assert not trees.folder.exists()


def test_a_failing_build_says_the_end_of_what_it_said(repository: Path) -> None:
    with pytest.raises(NotRunError, match="build of head failed with exit code 3") as error:
        revisions.build(repository, "echo out of nails; exit 3", {}, "head")
    assert "out of nails" in error.value.remedy
    assert error.value.exit_code == 4


def test_the_working_copy_is_never_imported_in_place_of_a_revision(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    monkeypatch.setenv("PYTHONPATH", f"{repository / 'lib'}{os.pathsep}{elsewhere}")
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    found = import_path(find_repository(str(repository)), tree, ()).split(os.pathsep)
    assert found == [str(tree), str(tree / "src"), str(tree / "lib"), elsewhere]


HELD = """
import sys, time
from torchstone.lab.revisions import find_commit, find_repository, open_trees
found = find_repository(sys.argv[1])
with open_trees(found) as trees:
    trees.add("base", find_commit(found, "HEAD"))
    print("ready", flush=True)
    time.sleep(60)
"""


def hold(repository: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": tempfile.gettempdir()}
    command = [sys.executable, "-c", HELD, str(repository)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_what_a_killed_command_left_is_removed_by_the_next(repository: Path) -> None:
    with hold(repository) as process:
        found = find_repository(str(repository))
        assert revisions.remove_abandoned(found) == []  # its owner lives
        assert len(trees_of(repository)) == 1
        process.kill()
    assert len(trees_of(repository)) == 1
    with open_trees(found):
        assert trees_of(repository) == []
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_ctrl_c_removes_the_trees(repository: Path) -> None:
    with hold(repository) as process:
        process.send_signal(signal.SIGINT)
        process.wait(240)
    assert trees_of(repository) == []
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_trees_whose_folder_was_removed_are_forgotten(repository: Path) -> None:
    with hold(repository) as process:
        process.kill()
    for folder in Path(tempfile.gettempdir()).iterdir():
        shutil.rmtree(folder)
    revisions.remove_abandoned(find_repository(str(repository)))
    assert trees_of(repository) == []

"""`torchstone check` and `bisect` as a user runs them, on real repositories."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.targets.support import ROOT, eventually

QUICK = ("--budget", "0.5s", "--no-save")
LIB = "SIZE = 5000\n\n\ndef work():\n    for i in range(SIZE):\n        i * i\n"
BENCH = "import lib\n\n\ndef step():\n    lib.work()\n"


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def commit(folder: Path, message: str, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_py", ".py").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "-m", message)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "pyproject.toml").write_text('[tool.torchstone]\ncheck = ["bench.py:step()"]\n')
    commit(folder, "first", src__lib_py=LIB, bench_py=BENCH)
    git(folder, "checkout", "-q", "-b", "change")
    return folder


def start(folder: Path, *words: str, **env: str) -> subprocess.Popen[str]:
    temporary = folder.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "CI_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "torchstone", *words],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(temporary), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    with start(folder, *words, **env) as process:
        out, err = process.communicate()
    done = subprocess.CompletedProcess(words, process.returncode, out, err)
    assert "Traceback" not in err, err
    assert len(git(folder, "worktree", "list").splitlines()) == 1
    assert list((folder.parent / "temporary").glob("torchstone-trees-*")) == []
    return done


@pytest.mark.slow
def test_a_slow_down_is_found_and_told_in_every_form(repository: Path) -> None:
    commit(repository, "three times the work", src__lib_py=LIB.replace("5000", "15000"))
    summary, outputs, report = (repository.parent / n for n in ("s.md", "o.txt", "check.json"))
    env = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(outputs)}
    done = run(repository, "check", "--github", "--json", str(report), *QUICK, **env)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("Slower: 1 of 1 target (bench.py:step() +")
    assert "::error file=bench.py,line=4,title=torchstone check::" in done.stderr
    assert "Slower" in summary.read_text()
    assert outputs.read_text() == "exit-code=1\nanswer=slower, wrong or failing\n"
    row = json.loads(report.read_text())["targets"][0]
    assert row["first_ratio"] is not None  # it was measured a second time
    assert 2 < row["time_ratio"] < 5
    again = run(repository, "check", "--from", str(report), "--markdown")
    assert again.returncode == 1
    assert again.stdout == summary.read_text()


@pytest.mark.slow
def test_a_document_alone_is_never_slower(repository: Path) -> None:
    commit(repository, "words", README_md="More words.\n")
    done = run(repository, "check", "--json", "-", *QUICK)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["targets"]
    assert (row["status"], row["same_code"]) == ("same code", True)


@pytest.mark.slow
def test_uncommitted_work_is_checked(repository: Path) -> None:
    """On a branch at main, with a change that nobody has committed."""
    (repository / "src" / "lib.py").write_text(LIB.replace("i * i", "raise ValueError('broken')"))
    done = run(repository, "check", *QUICK)
    assert done.returncode == 1, done.stderr
    assert "fails now" in done.stdout
    assert "ValueError: broken" in done.stdout
    assert str(repository.parent) not in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("check", "nothere.py:f()"), 2, "neither revision has it: There is no file nothere.py"),
        (("check", "added.py:f()"), 4, "added.py:f() is in the new revision alone"),
        (("check", "bench.py:gone()"), 4, "bench.py:gone() is in the base alone"),
        (("check", "--build", "echo boom; exit 7"), 4, "failed with exit code 7"),
        (("check", "--build", "test -f added.py"), 4, "The build of merge base with main failed"),
        (("check", "--base", "nope"), 2, "There is no revision 'nope' here."),
        (("check", "--base", "HEAD"), 2, "both sides are"),
        (("check", "--on-unknown", "maybe"), 2, "There is no answer to --on-unknown 'maybe'."),
        (("check", "--from", "nofile.json"), 2, "cannot be read"),
        (("bisect", "HEAD", "main", "bench.py:step()"), 2, "HEAD is not an ancestor of main."),
        (("bisect", "main", "HEAD", "added.py:f()"), 4, "GOOD does not have the target"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input(repository: Path, words: tuple[str, ...], code: int, said: str) -> None:
    git(repository, "checkout", "-q", "main")
    commit(repository, "one more", bench_py=BENCH + "\n\ndef gone():\n    pass\n")
    git(repository, "checkout", "-q", "-B", "change")
    commit(repository, "change", bench_py=BENCH, added_py="def f():\n    pass\n")
    done = run(repository, *words, "--no-save")
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


@pytest.mark.slow
def test_targets_of_tests_that_use_the_fixture(repository: Path) -> None:
    (repository / "pyproject.toml").write_text("")
    test = (
        "import bench\n\n\ndef quick():\n    pass\n\n\ndef test_speed(torchstone):\n"
        "    torchstone.assert_not_slower(bench.step, quick)\n\n\ndef test_other():\n    1 / 0\n"
    )
    commit(repository, "tests", test_speed_py=test)
    git(repository, "checkout", "-q", "-b", "more")
    (repository / "test_speed.py").write_text(test + "\n")
    done = run(repository, "check", "--base", "change", "--json", "-", *QUICK)
    assert done.returncode in (0, 3), done.stderr
    names = {row["target"] for row in json.loads(done.stdout)["targets"]}
    assert names == {"bench.py:step()", "test_speed.py:quick()"}


def test_github_is_told_why_there_is_no_report(repository: Path) -> None:
    commit(repository, "words", README_md="More words.\n")
    summary, outputs = (repository.parent / name for name in ("s.md", "o.txt"))
    env = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(outputs)}
    for words, code in ((("--build", "exit 9"), 4), (("--base", "nope"), 2)):
        done = run(repository, "check", "--github", "--no-save", *words, **env)
        assert done.returncode == code
        assert "::error title=torchstone check::" in done.stderr
    lines = outputs.read_text().splitlines()
    assert [one for one in lines if one.startswith("exit")] == ["exit-code=4", "exit-code=2"]
    assert "failed with exit code 9" in summary.read_text()


def in_turns(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if "bench.py:step(): measuring" in line:
            return
    raise AssertionError("it never measured")


@pytest.mark.slow
def test_ctrl_c_and_kill_leave_no_work_tree(repository: Path) -> None:
    commit(repository, "words", README_md="More words.\n")
    words = ("check", "--budget", "100s", "--no-save")
    with start(repository, *words) as process:
        in_turns(process)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    assert process.returncode == 130
    assert out.startswith("Interrupted")
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    with start(repository, *words) as process:
        in_turns(process)
        process.kill()
    assert eventually(lambda: len(git(repository, "worktree", "list").splitlines()) == 3)
    assert run(repository, "check", "--build", "exit 9", "--no-save").returncode == 4


@pytest.mark.slow
def test_bisect_names_the_commit_and_goes_on_where_it_was_ended(repository: Path) -> None:
    for number in range(1, 7):
        size = "15000" if number >= 4 else "5000"
        broken = number == 2
        source = "this is no Python\n" if broken else LIB.replace("5000", size)
        commit(repository, f"commit {number}", src__lib_py=source + f"# {number}\n")
    words = ("bisect", "main", "HEAD", "bench.py:step()", "--budget", "2s", "--no-save")
    first = run(repository, *words, "--most-probes", "1")
    assert first.returncode == 3, first.stderr
    done = run(repository, *words, "--json", "-")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["resumed"] == 1
    assert report["culprits"][0]["revision"]["subject"] == "commit 4"
    assert report["culprits"][0]["posterior"] >= 0.95
    assert all("commit 2" in one["revision"]["subject"] for one in report["skipped"])
    again = run(repository, *words)
    assert "commit 4" in again.stdout
    assert "probes of an earlier search counted" in again.stdout


@pytest.mark.slow
def test_a_kept_result_says_how_to_repeat_it(repository: Path) -> None:
    commit(repository, "words", README_md="More words.\n")
    db = str(repository.parent / "kept.db")
    done = run(repository, "check", "--budget", "0.5s", "--db", db, "--json", "-")
    ident = json.loads(done.stdout)["targets"][0]["result_ids"][0]
    refused = run(repository, "repro", ident, "--db", db)
    assert refused.returncode == 2
    assert "work trees" in refused.stderr
    assert "torchstone check" in refused.stderr

"""A mistake in what was typed: one sentence, a remedy, exit code 2, nothing written."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.targets.support import HONEST, ROOT, torchstone
from tests.validate.cases import pair
from torchstone.cli.app import cli
from torchstone.cli.bench import bench
from torchstone.cli.options import Output, deliver_result
from torchstone.lab.output_files import NotWritten, writable, write_file, writing
from torchstone.machine.memory import allocator_environment
from torchstone.records import UsageError
from torchstone.store import open_store

NOBODY = 65534
MAIN = "from torchstone.cli import main; main()"

BAD = [
    (["zzzzzzzz.py:make"], "There is no file zzzzzzzz.py.", "Check the path"),
    (["honst.py:make"], "There is no file honst.py.", "Did you mean honest.py?"),
    (["honest.py:mak"], "honest.py has no 'mak'.", "Did you mean honest.py:make"),
    ([".:make"], "'.:make' is not a target.", ""),
    (["./:make"], "is a folder", "Name a file in it."),
    (["honest.py:make", "--vs", "inductr"], "There is no variant 'inductr'.", "inductor?"),
    (["honest.py:make", "--vs", "inductor+dynamik"], "no modifier 'dynamik'", "+dynamic?"),
    (["honest.py:make", "--vs", "eager+dynamic"], "eager has no modifier", ""),
    (["honest.py:make", "--budget", "-3s"], "-3s is not more than zero", ""),
    (["honest.py:make", "--budget", "0"], "0 is not more than zero", ""),
    (["honest.py:make", "--budget", "soon"], "'soon' is not a duration", "30s"),
    (["honest.py:make", "--within", "200%"], "not between 0 and 100", ""),
    (["honest.py:make", "--margin", "x"], "'x' is not a share", "1%"),
    (["honest.py:make", "--replicates", "0"], "must be at least 1", ""),
    (["honest.py:make", "--threads", "0"], "--threads must be at least 1", "1 or more"),
    (["honest.py:make", "--mode", "sideways"], "There is no mode 'sideways'", "training"),
    (["honest.py:make", "--precision", "fp13"], "There is no precision 'fp13'", "bf16"),
    (["honest.py:make", "--allocator", "mine"], "There is no allocator 'mine'", "keep"),
    (["honest.py:make", "--python", "python9.9"], "'python9.9' was not found", "3.10"),
    (["honest.py:make", "--env", "NOTHING"], "write NAME=VALUE", ""),
    (["honest.py:make", "--arm", "speed=high"], "--arm does not know 'speed=high'", "key=value"),
    (["honest.py:make", "--arm", "name='x"], "cannot be read", "quotes"),
    (["honest.py:make", "--arm", " "], "--arm is empty", "name="),
    (["honest.py:make", "--arm", "threads=many"], "threads=many is not a number", ""),
    (["honest.py:make", "--json", "no/such/out.json"], "There is no folder", "Make it first"),
    (["honest.py:make", "--json", "."], "cannot be written", ""),
    ([], "There is nothing to measure.", "Name a target"),
    (["honest.py:make", "--threads", "two"], "--threads two is not a number", "1,2,4"),
    (["honest.py:make", "--threads", "1,x"], "'x' is no number of threads", "1,2,4"),
    (["honest.py:make", "--sweep", "batch"], "'batch' is no sweep", "batch=1,8,32"),
    (["honest.py:make", "--sweep", "batch=1,,2"], "has an empty part", ""),
    (["honest.py:make", "--command", "true"], "cannot be compared with targets", ""),
    (["--command", "'"], "cannot be read", ""),
    (["honest.py:make", "--svg", "x.svg"], "--svg draws a sweep", ""),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(HONEST.split(":")[0], tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("words", "message", "remedy"), BAD, ids=lambda v: str(v)[:40])
def test_a_mistake_costs_nothing(here: Path, words: list[str], message: str, remedy: str) -> None:
    before = sorted(here.iterdir())
    done = CliRunner().invoke(bench, [*words, "--db", "kept.db"])
    if isinstance(done.exception, UsageError):
        said, code = f"{done.exception.message}\n{done.exception.remedy}", 2
    else:
        said, code = done.output, done.exit_code
    assert code == 2
    assert message in said
    assert remedy in said
    assert sorted(here.iterdir()) == before


def test_the_process_itself_says_sentence_and_remedy_and_exits_with_2(here: Path) -> None:
    done = torchstone("bench", "honest.py:mak", "--db", "kept.db", cwd=here)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "torchstone: honest.py has no 'mak'.",
        "  Did you mean honest.py:make or honest.py:make_slow?",
    ]
    assert not (here / "kept.db").exists()


FACTORIES = """
import functools
def wrong(): return 42
def needs(a, b): return None
def odd(): return (1, 2)
def local():
    def hidden(): pass
    return hidden
value = 7
class Net:
    def __call__(self): pass
    def forward(self, inner): pass
def fine():
    inner = 3
    if inner: inner2 = 4
    return inner
"""


@pytest.mark.parametrize(
    ("name", "message", "remedy"),
    [
        ("wrong", "returned an int; expected a Workload or (callable, inputs)", "wrong()"),
        ("needs", "needs arguments (a, b)", "without required arguments"),
        ("odd", "returned a pair whose first item, an int, cannot be called", ""),
        ("value", "is an int, not a factory", "Write a function"),
        ("hidden", "has no 'hidden'", "Did you mean"),
        ("Net", "returned a Net", "returns the module and its inputs"),
        ("inne", "has no 'inne'", "fine or factories.py:needs?"),
        ("inne()", "has no 'inne'", "fine() or factories.py:needs()?"),
    ],
)
def test_a_factory_that_is_none(here: Path, name: str, message: str, remedy: str) -> None:
    (here / "factories.py").write_text(FACTORIES)
    done = torchstone("bench", f"factories.py:{name}", "--db", "kept.db", cwd=here)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert message in done.stderr
    assert remedy in done.stderr
    assert not (here / "kept.db").exists()


def test_a_missing_module_is_named(here: Path) -> None:
    done = torchstone("bench", "no_such_package.mod:make", "--db", "kept.db", cwd=here)
    assert done.returncode == 2
    assert "There is no module no_such_package." in done.stderr
    assert not (here / "kept.db").exists()


def test_a_file_that_is_no_database_is_refused_untouched(here: Path) -> None:
    (here / "notes.txt").write_text("these are my notes, not a database\n" * 100)
    before = (here / "notes.txt").read_bytes()
    done = torchstone("bench", "honest.py:make", "--db", "notes.txt", cwd=here)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert (here / "notes.txt").read_bytes() == before
    assert sorted(p.name for p in here.iterdir()) == ["honest.py", "notes.txt"]


def test_a_newer_database_is_refused_untouched(here: Path) -> None:
    with open_store(str(here / "kept.db")):
        pass
    connection = sqlite3.connect(here / "kept.db")
    (version,) = connection.execute("pragma user_version").fetchone()
    connection.execute(f"pragma user_version = {version + 1000}")
    connection.execute("pragma journal_mode = delete")
    connection.close()
    before = (here / "kept.db").read_bytes()
    done = torchstone("bench", "honest.py:make", "--db", "kept.db", cwd=here)
    assert done.returncode == 2, done.stderr
    assert "newer" in done.stderr
    assert (here / "kept.db").read_bytes() == before


def test_a_database_in_a_missing_folder_is_refused(here: Path) -> None:
    done = torchstone("bench", "honest.py:make", "--db", "no/such/kept.db", cwd=here)
    assert done.returncode == 2, done.stderr
    assert "The directory no/such for the database does not exist." in done.stderr
    assert not (here / "no").exists()


def _others_may_run(program: str) -> bool:
    """Whether every folder on the way to the program, through links, is open to all."""
    real = Path(os.path.realpath(program))
    places = {*Path(program).absolute().parents, *real.parents, ROOT, *ROOT.parents}
    return all(place.stat().st_mode & 0o001 for place in places) and bool(real.stat().st_mode & 1)


def test_an_unreadable_database_is_refused_before_anything_runs(here: Path) -> None:
    with open_store(str(here / "kept.db")):
        pass
    (here / "kept.db").chmod(0)
    for folder in (here, *here.parents[:2]):
        folder.chmod(0o755)
    if os.geteuid() == 0 and not _others_may_run(sys.executable):
        pytest.skip("another user may not run this interpreter")
    as_other = {"user": NOBODY} if os.geteuid() == 0 else {}  # root may read everything
    before = (here / "kept.db").stat()
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "bench", "honest.py:make", "--db", str(here / "kept.db")],
        capture_output=True,
        text=True,
        cwd=here,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "HOME": str(here)},
        **as_other,  # type: ignore[call-overload]
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "kept.db" in done.stderr
    assert len(done.stderr.splitlines()) == 2  # sentence and remedy
    assert (here / "kept.db").stat() == before


@pytest.mark.parametrize("name", ["jemalloc", "tcmalloc"])
def test_an_allocator_is_used_or_its_absence_is_told(here: Path, name: str) -> None:
    try:
        allocator_environment(name)
    except UsageError:
        done = torchstone("bench", "honest.py:make", "--allocator", name, "--no-save", cwd=here)
        assert done.returncode == 2
        assert f"The allocator {name} is not installed" in done.stderr
        assert "--allocator default" in done.stderr
        return
    words = ["bench", "honest.py:make", "--allocator", name, "--no-save", "--budget", "1s"]
    done = torchstone(*words, "--replicates", "2", "--json", "-", cwd=here)
    assert done.returncode == 0, done.stderr
    environment = json.loads(done.stdout)["arms"][0]["environment"]
    assert environment["allocator"] == name
    assert environment["os"]["malloc"] == name


@pytest.mark.parametrize(
    "words",
    [
        ["show", "last", "--db", "absent.db"],
        ["list", "--db", "absent.db"],
        ["repro", "last", "--db", "absent.db"],
        ["contract", "check", "honest.py:make", "absent.json"],
        ["contract", "check", "honest.py:make", "honest.py"],
        ["contract", "write", "honest.py:make", "no/such/folder.json"],
        ["timeit", "1 +"],
        ["timeit", "-s", "def", "pass"],
        ["timeit", "return 1"],
        ["timeit", "-n", "-1", "pass"],
        ["token", "create"],
        ["timeit", "-u", "hours", "pass"],
    ],
    ids=" ".join,
)
def test_other_commands_refuse_as_clearly(here: Path, words: list[str]) -> None:
    done = torchstone(*words, cwd=here)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr
    assert "Traceback" not in done.stderr
    assert "\\t" not in done.stderr, "a tab of click's, shown as its escape"
    assert sorted(p.name for p in here.iterdir()) == ["honest.py"]


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "honest.py:make", "--json", "out.svg"],
        ["explain", "honest.py:make", "--roofline", "--out", "out.svg"],
        ["profile", "honest.py:make", "--out", "out.svg"],
        ["contract", "write", "honest.py:make", "out.svg"],
    ],
    ids=" ".join,
)
def test_a_file_that_may_not_be_written_is_found_before_anything_runs(
    here: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    (here / "out.svg").write_text("keep me")
    may = os.access

    def access(path: str, mode: int) -> bool:  # root may write everything
        return not (os.path.basename(path) == "out.svg" and mode & os.W_OK) and may(path, mode)

    monkeypatch.setattr(os, "access", access)
    monkeypatch.setenv("TORCHSTONE_DB", "kept.db")
    with pytest.raises(UsageError, match=r"out\.svg cannot be written"):
        cli.main(words, standalone_mode=False)
    assert (here / "out.svg").read_text() == "keep me"
    assert sorted(p.name for p in here.iterdir()) == ["honest.py", "out.svg"]


def test_where_rights_do_not_tell_it_is_tried_and_nothing_is_left(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHSTONE_DB", "kept.db")
    words = ["bench", "honest.py:make", "--json", "/proc/out.json"]  # root "may" write there
    with pytest.raises(UsageError, match=r"/proc/out\.json cannot be written"):
        cli.main(words, standalone_mode=False)
    assert writable("new.json")
    assert [p.name for p in here.iterdir()] == ["honest.py"]
    os.mkfifo("pipe")
    assert writable("pipe")  # without opening it, which would wait for a reader


def test_a_disk_that_is_full_is_told_in_a_sentence() -> None:
    with pytest.raises(NotWritten, match=r"/dev/full cannot be written: No space left on device\."):
        write_file("/dev/full", "x" * 100_000)
    with pytest.raises(UsageError, match="wanted: once"), writing("x"):
        raise UsageError("wanted: once")
    with pytest.raises(NotWritten, match="/dev/full cannot be written"):
        deliver_result(Output("/dev/full"), pair(), saved=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "honest.py:make", "--budget", "-5s"], "-5s is not more than zero."),
        (["list", "widgets"], "'widgets' is not one of"),
        (["show"], "Missing argument"),
    ],
)
def test_mistakes_are_told_in_one_voice(here: Path, words: list[str], said: str) -> None:
    done = torchstone(*words, cwd=here)
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith("torchstone: ")
    assert said in first
    assert second == f"  See `torchstone {words[0]} --help`."

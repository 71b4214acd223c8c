"""A measurement is never lost to its output: a full disk, a full pipe, a database that fills."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.targets.support import HONEST, ROOT, eventually
from torchstone.lab.output_files import NotWritten, write_file
from torchstone.store import open_store

MAIN = "from torchstone.cli import main; main()"
QUICK = ("--budget", "0.1s", "--replicates", "1")


def torchstone(*words: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )


def test_json_to_a_full_place_costs_nobody_the_report(tmp_path: Path) -> None:
    db = str(tmp_path / "x.db")
    done = torchstone("timeit", "1+1", *QUICK, "--save", "--db", db, "--json", "/dev/full")
    assert done.returncode == 1
    assert "per loop" in done.stdout
    assert "/dev/full cannot be written: No space left on device." in done.stderr
    assert "Traceback" not in done.stderr


def test_standard_output_that_is_full(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        printed = torchstone("timeit", "1+1", *QUICK, "--json", "-", stdout=full.fileno())
        plain = torchstone("timeit", "1+1", *QUICK, stdout=full.fileno())
    for done in (printed, plain):
        assert done.returncode == 1
        assert "per loop" in done.stderr  # the answer goes where it can
        assert "Standard output cannot be written: No space left on device." in done.stderr
        assert "Traceback" not in done.stderr


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(UnicodeEncodeError):
        write_file(str(path), "x" * 100_000 + "\ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.json"]
    write_file(str(path), "new\r\n")
    assert path.read_bytes() == b"new\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_goes_on_pointing_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    write_file(str(tmp_path / "link.json"), "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def test_a_pipe_gets_it_directly(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write_file(str(pipe), "x" * 200_000)
    reader.join()
    assert got == ["x" * 200_000]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a small file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(place: Path) -> Path:
    """Leave no byte free."""
    filler = place / "filler"
    with open(filler, "ab", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


@pytest.mark.slow
def test_a_run_whose_database_fills_goes_on_when_there_is_room(small: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    names = ("one", "two", "three")
    models = "".join(f'[[model]]\nname = "{name}"\ntarget = "{HONEST}"\n' for name in names)
    suite.write_text(models)
    db, out = str(small / "x.db"), small / "run.json"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from torchstone.cli import main; main()",
            "run",
            str(suite),
            "--variants",
            "eager+no_grad",
            "--budget-per-case",
            "0.3s",
            "--replicates",
            "1",
            "--label",
            "full",
            "--db",
            db,
            "--json",
            str(out),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )

    def stored() -> int:
        try:
            with open_store(db, read_only=True) as store:
                return len(store.done_positions("full"))
        except Exception:
            return 0

    assert eventually(lambda: stored() >= 1, 120)
    filler = fill(small)
    said, err = process.communicate(timeout=240)
    assert process.returncode == 1, err
    assert "the disk is full" in err
    assert "No space left on device" in err  # of the JSON
    assert "Traceback" not in err
    assert "one" in said
    assert not out.exists()  # no part of it
    filler.unlink()
    before = stored()
    resumed = torchstone("run", "--resume", "full", "--db", db, "--json", str(out))
    assert resumed.returncode in (0, 1), resumed.stderr
    assert before < 3
    assert stored() == 3
    assert len(json.loads(out.read_text())["cases"]) == 3


@pytest.mark.slow
def test_a_result_is_shown_where_the_disk_is_full(small: Path) -> None:
    filler = fill(small)
    done = torchstone("timeit", "1+1", *QUICK, "--save", "--db", str(small / "x.db"))
    assert done.returncode == 1
    assert "the disk is full" in done.stderr
    assert "per loop" in done.stdout
    filler.unlink()
    assert (
        torchstone("timeit", "1+1", *QUICK, "--save", "--db", str(small / "x.db")).returncode == 0
    )


def test_a_full_place_is_not_the_user_s_mistake() -> None:
    with pytest.raises(NotWritten) as found:
        write_file("/dev/full", "x" * 100_000)
    assert found.value.exit_code == 1
    assert "Free some space" in found.value.remedy


@pytest.mark.parametrize("closed", ["", "2>&-"])
def test_a_standard_output_that_is_closed(tmp_path: Path, closed: str) -> None:
    """No traceback, no file of ours under its number; what there is to see is on standard error."""
    words = f"{sys.executable} -c '{MAIN}' list suites >&- {closed}"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(words, shell=True, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    if not closed:
        assert "Standard output cannot be written" in done.stderr
        assert "torchbench" in done.stderr

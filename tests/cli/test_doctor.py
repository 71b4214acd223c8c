"""`torchstone doctor` on this very machine, whatever it is like."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import read_page
from tests.targets.support import ROOT, eventually, marked, torchstone
from torchstone.cli.doctor import exit_code
from torchstone.cli.options import Exit
from torchstone.lab.doctor import Visit
from torchstone.records import DoctorReport, Finding, Level
from torchstone.store import open_store

PAGE = ROOT / "docs" / "reference" / "plugins.md"
PLUGIN = """
from torchstone.machine.doctor import FunctionCheckup, fail
DISK = FunctionCheckup("disk", "here", lambda view: [fail("disk", "full", "Empty it.")])
BROKEN = FunctionCheckup("broken", "here", lambda view: 1 / 0)
"""


QUICK_TORCH = "__version__ = '2.99'\ndef get_num_threads():\n    return 3\n"
"""A stand-in that is asked as the real one is, in a process of its own, but imported at once."""


def examined(*words: str, **env: str) -> tuple[int, Any]:
    done = torchstone("doctor", "--no-aa", *words, "--json", "-", **env)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_report_of_this_machine(tmp_path: Path) -> None:
    db = tmp_path / "kept.db"
    done = torchstone("doctor", "--no-aa", "--fix", "--db", str(db))
    assert done.returncode in (0, 1), done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("doctor · ")
    for title in ("  Other work", "  Processor", "  Limits", "  Settings", "  Proof"):
        assert title in lines
    assert "\x1b" not in done.stdout
    fit = any(line.startswith("  Fit ") for line in lines)
    assert fit is (done.returncode == 0)
    assert any(line.startswith("  Not fit ") for line in lines) is not fit
    assert "identical" not in done.stdout
    with open_store(str(db)) as store:
        (report,) = store.doctor_reports()
    assert report.fit is fit
    assert report.machine["python"].count(".") == 2


def test_a_bad_setting_is_found_and_its_remedy_told(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    (tmp_path / "torch.py").write_text(QUICK_TORCH)
    done = torchstone(
        *("doctor", "--no-aa", "--markdown", "--fix", "--json", str(file)),
        PYTHONPATH=f"{tmp_path}:{ROOT / 'src'}",
        OMP_NUM_THREADS="4096",
        TORCH_LOGS="recompiles",
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout.startswith("**doctor** · ")
    assert "`unset TORCH_LOGS`" in done.stdout
    document = json.loads(file.read_text())
    assert document["machine"]["torch"] == "2.99"
    found = {f["name"]: f for f in document["findings"]}
    assert found["threads"]["level"] == "warn"
    assert "OMP_NUM_THREADS 4096" in found["threads"]["message"]
    assert found["threads"]["figures"]["torch"] == 3
    assert found["threads"]["figures"]["budget"] == len(os.sched_getaffinity(0))
    assert found["variables"]["level"] == "warn"


def test_plug_ins_join_in_and_a_broken_one_is_a_warning(tmp_path: Path) -> None:
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "torch.py").write_text(QUICK_TORCH)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[torchstone.checkups]\ndisk = mine:DISK\nbroken = mine:BROKEN\nlost = mine:NOTHING\n"
    )
    code, document = examined(PYTHONPATH=f"{tmp_path}:{ROOT / 'src'}")
    found = {f["name"]: f for f in document["findings"]}
    assert (code, document["fit"]) == (1, False)
    assert found["disk"]["level"] == "fail"
    assert "ZeroDivisionError" in found["broken"]["message"]
    assert (found["broken"]["level"], found["lost"]["level"]) == ("warn", "warn")


def test_the_worked_example_of_the_plug_ins_page(tmp_path: Path) -> None:
    (tmp_path / "full_disk.py").write_text(read_page(PAGE).files["full_disk.py"])
    code = "import full_disk, json; from torchstone.machine.doctor import View, run_checkups\n"
    code += "print([f.name for f in run_checkups([full_disk.DISK], View())])"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.strip() == "['disk']", done.stderr


@pytest.mark.parametrize(
    ("level", "interrupted", "code"),
    [
        (Level.WARN, False, 0),
        (Level.FAIL, False, 1),
        (Level.OK, True, Exit.INTERRUPTED),
        (Level.FAIL, True, Exit.INTERRUPTED),
    ],
)
def test_exit_codes(level: Level, interrupted: bool, code: int) -> None:
    report = DoctorReport("d", "m", "2026-11-16", (Finding("swap", level, "so"),))
    assert exit_code(Visit(report, interrupted)) == code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device", "no way"), "There is no device 'no way'."),
        (("--json", "/no/such/folder/x.json"), "There is no folder"),
        (("--db", "/proc/none/x.db"), "torchstone: "),
        (("--nonsense",), "No such option"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(words: tuple[str, ...], said: str) -> None:
    done = torchstone("doctor", "--no-aa", *words)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_has_examples() -> None:
    done = torchstone("doctor", "--help")
    assert done.returncode == 0
    assert "torchstone doctor --calibrate" in done.stdout
    assert "doctor" in torchstone("--help").stdout


def test_an_interrupt_in_the_middle_of_the_proof_keeps_the_rest(
    tmp_path: Path, no_survivors: str
) -> None:
    db = tmp_path / "kept.db"
    (tmp_path / "torch.py").write_text(QUICK_TORCH)
    process = subprocess.Popen(
        [sys.executable, "-m", "torchstone", "doctor", "--db", str(db)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"},
        # A run in the background ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stderr is not None
    said = ""
    while "building" not in said:  # the first arm's process is about to start
        line = process.stderr.readline()
        assert line, f"it ended before the proof: {said}"
        said += line
    assert eventually(lambda: len(marked(no_survivors)) >= 2, 240)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == Exit.INTERRUPTED, err
    assert "Traceback" not in err
    assert "Other work" in out
    with open_store(str(db)) as store:
        (report,) = store.doctor_reports()
    assert "processes" in {finding.name for finding in report.findings}


@pytest.mark.slow
def test_two_identical_arms_say_what_can_be_seen_today(tmp_path: Path) -> None:
    db = tmp_path / "kept.db"
    done = torchstone("doctor", "--db", str(db), "--json", "-", timeout=240)
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    (found,) = [f for f in document["findings"] if f["name"] == "identical"]
    assert document["smallest_detectable"] > 0
    assert document["identical"]["replicates"] >= 2
    assert 0.2 < document["identical"]["time_ratio"] < 5
    assert found["figures"]["smallest_detectable"] == document["smallest_detectable"]
    with open_store(str(db)) as store:
        (report,) = store.doctor_reports()
    assert report.smallest_detectable == pytest.approx(document["smallest_detectable"])

"""The process that calibrates: its end, however it comes, is a result or one clear sentence."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from tests.machine.support import eventually, run
from torchstone.machine.calibrate import run_calibration
from torchstone.machine.calibrate.starter import MODULE, read_calibration
from torchstone.records import Calibration, Peak, UsageError, to_data

PATIENCE_S = 60.0
GOOD = Calibration("i", "m", "f", "c", compute=(Peak(9e10, dtype="fp32", threads=1),))


def script(*lines: str) -> list[str]:
    return [sys.executable, "-S", "-c", "\n".join(("import json, os, sys, time", *lines))]


def printing(message: object) -> str:
    return f"print({json.dumps(message)!r}, flush=True)"


def complaint(*lines: str, patience: float = PATIENCE_S) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read_calibration(script(*lines), patience, None)
    assert caught.value.remedy
    return caught.value


def test_a_result_and_what_was_said_on_the_way() -> None:
    said: list[str] = []
    lines = printing({"say": "round 1"}), printing({"calibration": to_data(GOOD)})
    assert read_calibration(script(*lines), PATIENCE_S, said.append) == GOOD
    assert said == ["round 1"]
    assert read_calibration(script(*lines), PATIENCE_S, None) == GOOD


def test_a_traceback_becomes_a_sentence() -> None:
    error = complaint("raise RuntimeError('out of luck')")
    assert "ended without a result (exit code 1)" in error.message
    assert "RuntimeError: out of luck" in error.message
    assert "\n" not in error.message


def test_a_death_by_signal_is_named() -> None:
    assert "killed by signal 9" in complaint("os.kill(os.getpid(), 9)").message


def test_silence_is_no_result() -> None:
    assert "ended without a result (exit code 0)" in complaint("pass").message


@pytest.mark.parametrize("before", [printing({"say": "hm"}), "print('{', end='', flush=True)"])
def test_a_hang_is_ended_with_all_its_children(before: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    error = complaint(
        before,
        "child = os.fork()",
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}} ')",
        "time.sleep(600)",
        patience=2.5,
    )
    assert "did not end within 2.5 s" in error.message
    found = [int(word) for word in pids.read_text().split()]
    assert len(found) == 2
    assert eventually(lambda: not any(alive(pid) for pid in found))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_ctrl_c_ends_it_too(tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    lines = (
        f"open({str(note)!r}, 'w').write(str(os.getpid()))",
        printing({"say": "begun"}),
        "time.sleep(600)",
    )
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        read_calibration(script(*lines), 500.0, interrupt)
    assert time.monotonic() - started < 100
    assert eventually(lambda: not alive(int(note.read_text())))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{broken", "what cannot be read: '{broken'"),
        ("[1, 2]", "what cannot be read"),
        ('{"calibration": {"id": "i"}}', "field 'machine_id' is missing"),
        ('{"calibration": 7}', "expected an object"),
        ('{"error": ["No luck.", "Try tomorrow."]}', "No luck."),
        ('{"error": "No luck."}', "No luck."),
    ],
)
def test_broken_json_is_told(text: str, words: str) -> None:
    assert words in complaint(f"print({text!r})").message


@pytest.mark.parametrize("value", ["NaN", '"NaN"', "Infinity", '"-Infinity"', "0", "-5", '"9"'])
def test_figures_that_cannot_be_are_refused(value: str) -> None:
    text = json.dumps({"calibration": to_data(GOOD)}).replace("90000000000.0", value)
    assert value in text
    message = complaint(f"print({text!r})").message
    assert "cannot be" in message  # cannot be read, or a figure that cannot be


def test_an_unknown_field_is_refused() -> None:
    data = {**to_data(GOOD), "sparkle": 1}
    assert "unknown field 'sparkle'" in complaint(printing({"calibration": data})).message


def test_an_interpreter_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="cannot be started"):
        read_calibration(["/nowhere/python"], PATIENCE_S, None)


def test_a_missing_torch_is_a_clear_sentence() -> None:
    command = [sys.executable, "-S", "-m", MODULE, "--json"]  # -S: no installed packages
    with pytest.raises(UsageError, match="Calibrating needs torch") as caught:
        read_calibration(command, PATIENCE_S, None)
    assert "pip install torch" in caught.value.remedy


def test_a_broken_torch_that_prints_is_a_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(
        "print('hello from a library')\nraise ImportError('libsomething.so: not found')\n"
    )
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    )
    with pytest.raises(UsageError, match=r"ImportError: libsomething\.so: not found"):
        run_calibration(only=[("fp32", 1)])


def test_bad_requests_are_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="no peak 'fp31'"):
        run_calibration(only=[("fp31", 1)])
    with pytest.raises(UsageError, match="names no peak"):
        read_calibration([sys.executable, "-S", "-m", MODULE, "--only", "fp32"], PATIENCE_S, None)


REAL = """
import json, sys
from torchstone.machine.calibrate import run_calibration
from torchstone.records import to_data
said = []
found = run_calibration(only=[("fp32", 1)], seconds=0.1, say=said.append)
print(json.dumps([to_data(found), said, "torch" in sys.modules, "numpy" in sys.modules]))
"""


def test_the_real_one_comes_back_without_torch_on_this_side() -> None:
    pytest.importorskip("torch")
    data, said, torch_here, numpy_here = json.loads(run(REAL))
    assert not torch_here
    assert not numpy_here
    assert [(peak["dtype"], peak["threads"]) for peak in data["compute"]] == [("fp32", 1)]
    assert said[0] == "importing torch"
    assert said[-1].startswith("round 4 of 4")


def test_an_illegal_instruction_leaves_the_other_roofs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The interpreter is a stand-in: it dies of any type of numbers but the long ones."""
    words = tmp_path / "words"
    text = f"""#!{sys.executable}
import os, sys
open({str(words)!r}, "a").write(" ".join(sys.argv) + "\\n")
if "bf16" in " ".join(sys.argv):
    os.kill(os.getpid(), 4)
{printing({"calibration": to_data(GOOD)})}
"""
    stand_in = tmp_path / "python"
    stand_in.write_text(text)
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    found = run_calibration(dtypes=["fp32", "bf16", "int8"], timeout_s=PATIENCE_S)
    assert found.compute == GOOD.compute
    assert [note.partition(":")[0] for note in found.notes] == ["bf16, int8"]
    assert "ONEDNN_MAX_CPU_ISA" in found.notes[0]
    first, second = words.read_text().splitlines()
    assert "--dtypes fp32 bf16 int8" in first
    assert "--dtypes fp32 --" in second
    with pytest.raises(UsageError) as refused:
        run_calibration(only=[("bf16", 1)], timeout_s=PATIENCE_S)
    assert "ONEDNN_MAX_CPU_ISA" in refused.value.remedy

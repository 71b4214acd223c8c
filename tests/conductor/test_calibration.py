"""The process that calibrates: its end, however it comes, is a result or one clear sentence."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.machine.support import eventually, run
from torchstone.conductor import calibration
from torchstone.conductor.calibration import run_calibration
from torchstone.records import Calibration, Peak, UsageError, to_data

GOOD = Calibration("i", "m", "f", "c", compute=(Peak(9e10, dtype="fp32", threads=1),))
TIMEOUT_S = 60.0
WORKER = """
import os, sys, time
from torchstone.measure.worker import Worker, main
class Standin(Worker):
    def handlers(self):
        return {"calibrate": self.calibrate}
    def calibrate(self, command):
        asked = command["request"]
"""


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Sets what the process does when it is asked to calibrate."""

    def does(*lines: str) -> None:
        program = WORKER + "".join(f"        {line}\n" for line in lines) + "main(Standin)\n"
        monkeypatch.setattr(calibration, "PROGRAM", program)

    return does


def complaint(timeout_s: float = TIMEOUT_S) -> UsageError:
    with pytest.raises(UsageError) as caught:
        run_calibration(timeout_s=timeout_s)
    assert caught.value.remedy
    return caught.value


def test_a_result_and_what_was_said_on_the_way(child) -> None:  # type: ignore[no-untyped-def]
    said: list[str] = []
    child("self.phase('round 1')", "print('a library speaks')", f"return {to_data(GOOD)!r}")
    assert run_calibration(say=said.append) == GOOD
    assert said == ["round 1"]
    assert run_calibration() == GOOD


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("raise RuntimeError('out of luck')", "RuntimeError: out of luck"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("os._exit(0)", "exited with code 0"),
        ("os.write(self.replies, b'{broken' * 9)", "control pipe"),
        ("return 7", "control pipe"),
        ("return {'id': 'i'}", "control pipe"),
    ],
)
def test_an_end_without_a_result(child, line: str, words: str) -> None:  # type: ignore[no-untyped-def]
    child(line)
    message = complaint().message
    assert message.startswith("The calibration ended without a result: ")
    assert words in message
    assert "\n" not in message


def test_a_hang_is_ended_with_all_its_children(child, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pids = tmp_path / "pids"
    child(
        "self.phase('hm')",
        "os.fork()",
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}} ')",
        "time.sleep(600)",
    )
    assert "did not end within 2.5 s" in complaint(2.5).message
    found = [int(word) for word in pids.read_text().split()]
    assert len(found) == 2
    assert eventually(lambda: not any(alive(pid) for pid in found))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_ctrl_c_ends_it_too(child, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    note = tmp_path / "pid"
    child(
        f"open({str(note)!r}, 'w').write(str(os.getpid()))",
        "self.phase('begun')",
        "time.sleep(600)",
    )

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_calibration(say=interrupt, timeout_s=500.0)
    assert time.monotonic() - started < 100
    assert eventually(lambda: not alive(int(note.read_text())))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", 0.0, -5.0])
def test_figures_that_cannot_be_are_refused(child, value: object) -> None:  # type: ignore[no-untyped-def]
    data = to_data(GOOD)
    data["compute"][0]["value"] = value
    child(f"return {data!r}")
    assert "gave a figure that cannot be: the fp32 peak is" in complaint().message


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (None, "Calibrating needs torch, and this interpreter has none"),
        ("print('hello')\nraise ImportError('libsome.so: not found')", "libsome.so: not found"),
    ],
)
def test_a_missing_or_broken_torch_is_a_clear_sentence(
    torch: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch is None:
        hide = "import importlib.util; importlib.util.find_spec = lambda name: None; "
        monkeypatch.setattr(calibration, "PROGRAM", hide + calibration.PROGRAM)
    else:
        (tmp_path / "torch.py").write_text(torch)
        path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
        monkeypatch.setenv("PYTHONPATH", path)
    assert words in complaint().message


def test_bad_requests_are_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "Spawn", None)
    with pytest.raises(UsageError, match="no peak 'fp31'"):
        run_calibration(only=[("fp31", 1)])


REAL = """
import json, sys
from torchstone.conductor.calibration import run_calibration
from torchstone.records import to_data
said = []
found = run_calibration(only=[("fp32", 1)], seconds=0.1, say=said.append)
print(json.dumps([to_data(found), said, "torch" in sys.modules]))
"""


def test_the_real_one_comes_back_without_torch_on_this_side() -> None:
    pytest.importorskip("torch")
    data, said, torch_here = json.loads(run(REAL))
    assert not torch_here
    assert [(peak["dtype"], peak["threads"]) for peak in data["compute"]] == [("fp32", 1)]
    assert said[0] == "importing torch"
    assert said[-1].startswith("round 4 of 4")


def test_an_illegal_instruction_leaves_the_other_peaks(child) -> None:  # type: ignore[no-untyped-def]
    """The stand-in dies of any type of numbers but the long ones."""
    child(
        "if 'bf16' in asked['dtypes']:",
        "    os.kill(os.getpid(), 4)",
        f"return {{**{to_data(GOOD)!r}, 'device_name': ' '.join(asked['dtypes'])}}",
    )
    found = run_calibration(dtypes=["fp32", "bf16", "int8"], timeout_s=TIMEOUT_S)
    assert found.compute == GOOD.compute
    assert found.device_name == "fp32"
    assert [note.partition(":")[0] for note in found.notes] == ["bf16, int8"]
    assert "ONEDNN_MAX_CPU_ISA" in found.notes[0]
    with pytest.raises(UsageError) as refused:
        run_calibration(only=[("bf16", 1)], timeout_s=TIMEOUT_S)
    assert "ONEDNN_MAX_CPU_ISA" in refused.value.remedy

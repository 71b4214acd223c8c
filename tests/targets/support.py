"""How the tests of the measuring core run cases, and how they look for what is left behind."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchstone.conductor import EFFORTS, CaseResult, CaseSpec, Settings, run_case
from torchstone.records import ArmSpec, Measurement

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HONEST = f"{HERE / 'honest.py'}:make"
MARK = "TORCHSTONE_TEST_MARK"
FORKED = "forked"
QUICK: dict[str, Any] = {
    "budget_s": 0.2,
    "replicates": 2,
    "turn_ns": 2_000_000,
    "effort": FORKED,
}
# As usual, but torch is imported once for a case and not in each of its processes: what becomes of
# an arm does not depend on it. Tests of new processes ask for the usual effort.
EFFORTS[FORKED] = replace(EFFORTS["usual"], forks_short_steps=True, slots=1)


def target(file: str, name: str = "make") -> str:
    """A target of this folder."""
    return f"{HERE / file}.py:{name}"


def settings(**more: Any) -> Settings:
    """Short: two processes an arm and a few turns each."""
    return Settings(**{**QUICK, **more})


def run_arms(*arms: ArmSpec, **more: Any) -> CaseResult:
    """Measure arms in real processes."""
    return run_case(CaseSpec(arms, settings(**more)))


def beside_honest(bad: str, **more: Any) -> tuple[Measurement, Measurement, CaseResult]:
    """The honest arm first, then the other one; the honest one must have finished its work."""
    case = run_arms(ArmSpec("honest", HONEST), ArmSpec("bad", bad), **more)
    honest, other = case.arms
    assert honest.outcome.value == "ok", honest.detail
    assert {turn.replicate for turn in honest.turns} == {0, 1}
    return honest, other, case


def marked(mark: str) -> list[int]:
    """Processes that were started, by whatever way, under this mark."""
    entry = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                environ = Path(f"/proc/{name}/environ").read_bytes()
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if entry in environ.split(b"\0") and state not in "ZX":
                found.append(int(name))
    return found


def eventually(condition: Callable[[], bool], limit_s: float = 60.0) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture(autouse=True)
def no_survivors(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """No process that a test started, directly or not, outlives it."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    yield mark
    left = marked(mark)
    for pid in left:
        os.kill(pid, 9)
    assert not left, f"{len(left)} process(es) outlived the test"


IN_PROCESS = frozenset(
    ("bench", "compare", "db", "export", "history", "import", "list", "regressions", "repro", "run")
) | {"show", "timeit", "validate"}
"""Commands that do the same in this process, without the second that one of their own takes to
start. Signals, descriptors and what is loaded are tested with real processes, elsewhere."""


def torchstone(
    *words: str, cwd: Path | str | None = None, timeout: float = 300, **env: str
) -> subprocess.CompletedProcess[str]:
    """The command line; in a process of its own where the command or an environment asks for it."""
    if words and words[0] in IN_PROCESS and not env:
        return _in_process(words, cwd)
    return subprocess.run(
        [sys.executable, "-c", "from torchstone.cli import main; main()", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **env},
    )


def _in_process(words: tuple[str, ...], cwd: Path | str | None) -> subprocess.CompletedProcess[str]:
    from torchstone.cli.app import run

    said = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2)]
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
        patch.setattr(sys, "argv", ["torchstone", *words])
        patch.setattr(sys, "stdout", said[0])
        patch.setattr(sys, "stderr", said[1])
        if cwd is not None:
            patch.chdir(cwd)
        try:
            code = run()
        finally:
            signal.signal(signal.SIGTERM, before)
    for stream in said:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode() for stream in said)  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(words, code, out, err)

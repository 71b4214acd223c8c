"""The same question put to other tools, with the same wall time.

`torch.utils.benchmark`: two fresh processes, one after the other, each one `blocked_autorange`;
Mann-Whitney at 0.05 on the times of the blocks. pyperf: two runs of `pyperf timeit` with its own
defaults but for the number of processes, which fills the time; then `pyperf compare_to`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from aa_journal import Row
from aa_load import HERE, Size

from torchstone.machine.processes import die_with_parent

SIGNIFICANCE = 0.05
LEAST_RUN_S = 0.1
LEAST_PROCESSES = 2
VALUES = 3
"""pyperf's own default: 3 values a process after one warm-up."""
PYPERF_VALUES_S = 0.7
"""A first guess at what those take; later trials know it from the ones before."""
_SETUP = "import aa_targets; step, inputs = aa_targets.ready({effect})"
_STATEMENT = "step(*inputs)"


def run_torch(size: Size, effect: int, wall: float) -> Row:
    """Base, then new, each for half of `wall`."""
    started = time.monotonic()
    blocks = [_torch_blocks(size, arm, wall / 2) for arm in (0, effect)]
    base, new = (block["times"] for block in blocks)
    p = mann_whitney(base, new)
    return {
        "verdict": as_verdict(p < SIGNIFICANCE, _median(new) / _median(base)),
        "ratio": _median(new) / _median(base),
        "p": p,
        "wall_s": time.monotonic() - started,
        "wall_target_s": wall,
        "blocks": [len(base), len(new)],
        "block_size": [block["block_size"] for block in blocks],
    }


def mann_whitney(base: Sequence[float], new: Sequence[float]) -> float:
    """The two-sided p-value by the normal approximation; 1 where all values are alike."""
    from scipy.stats import mannwhitneyu  # a second to import, which a child must not pay

    return (
        1.0
        if len({*base, *new}) == 1
        else float(mannwhitneyu(base, new, method="asymptotic").pvalue)
    )


def _torch_blocks(size: Size, effect: int, wall: float) -> Row:
    command = [sys.executable, str(HERE / "aa_peers.py"), str(effect), repr(wall)]
    found: Row = json.loads(_run([*command, repr(time.monotonic())], size))
    return found


def torch_child(effect: int, wall: float, started: float) -> Row:
    """In the fresh process: time blocks until its share of the wall time is over."""
    from aa_targets import ready
    from torch.utils.benchmark import Timer

    step, inputs = ready(effect)
    timer = Timer(
        _STATEMENT,
        globals={"step": step, "inputs": inputs},
        num_threads=int(os.environ["AA_THREADS"]),
    )
    left = wall - (time.monotonic() - started)
    found = timer.blocked_autorange(min_run_time=max(LEAST_RUN_S, left))
    return {"times": list(found.times), "block_size": found.number_per_run}


def run_pyperf(size: Size, effect: int, wall: float, seen: Sequence[Row]) -> Row:
    """Base, then new, each with as many processes as fit into half of `wall`."""
    started = time.monotonic()
    processes = pyperf_processes(size, wall / 2, seen)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{arm}.json" for arm in ("base", "new")]
        for file, arm in zip(files, (0, effect), strict=True):
            _pyperf_timeit(size, arm, processes, file)
        measured = time.monotonic() - started
        said = _run([sys.executable, "-m", "pyperf", "compare_to", *map(str, files)], size)
        means = [_pyperf_mean(file) for file in files]
    return {
        "verdict": as_verdict("not significant" not in said.lower(), means[1] / means[0]),
        "ratio": means[1] / means[0],
        "said": said.strip(),
        "wall_s": time.monotonic() - started,
        "wall_target_s": wall,
        "processes": processes,
        # One more process than asked for: pyperf calibrates in one of its own.
        "process_s": measured / 2 / (processes + 1),
    }


def pyperf_processes(size: Size, wall: float, seen: Sequence[Row]) -> int:
    """How many fill the time, by what they took in earlier trials of the same file."""
    known = [row["process_s"] for row in seen if row.get("process_s")]
    each = _median(known) if known else size.start_s + PYPERF_VALUES_S
    return max(LEAST_PROCESSES, round(wall / each) - 1)


def _pyperf_timeit(size: Size, effect: int, processes: int, out: Path) -> None:
    inherited = ",".join(("PYTHONPATH", "OMP_NUM_THREADS", *size.environment))
    flags = ["--processes", str(processes), "--values", str(VALUES), "--name", "step"]
    flags += ["--inherit-environ", inherited, "--quiet", "-o", str(out)]
    code = ["-s", _SETUP.format(effect=effect), _STATEMENT]
    _run([sys.executable, "-m", "pyperf", "timeit", *flags, *code], size)


def _pyperf_mean(file: Path) -> float:
    import pyperf

    return float(pyperf.Benchmark.load(str(file)).mean())


def _run(command: list[str], size: Size) -> str:
    return run_tool(command, {**size.environment, "OMP_NUM_THREADS": str(size.threads)})


def run_tool(command: list[str], env: Mapping[str, str]) -> str:
    """A tool's own process and all it starts; nothing of it outlives this call."""
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    with subprocess.Popen(
        command,
        env={**os.environ, **env, "PYTHONPATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has one thread
    ) as process:
        try:
            out, err = process.communicate()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {err.strip()[-500:]}")
    return out


def as_verdict(different: bool, ratio: float) -> str:
    """In the words that ours uses."""
    if not different:
        return "no difference"
    return "slower" if ratio > 1.0 else "faster"


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return 0.5 * (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2])


if __name__ == "__main__":
    print(json.dumps(torch_child(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))))

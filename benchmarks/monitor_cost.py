"""What watching a training costs: `torchstone.monitor` on and off, beside traceml-ai.

    python benchmarks/monitor_cost.py                      # all settings, about ten minutes
    python benchmarks/monitor_cost.py --quick              # a look: one setting, seconds
    python benchmarks/monitor_cost.py --python PEER_PYTHON # an interpreter that has traceml-ai

One process an arm and round; rounds interleave the arms in random order, and `off` is run twice:
`off` against `off again` is the A/A control, which shows what this machine can tell apart. A step
is a small network and a fixed count of empty loops, calibrated once so that a step without watching
takes 0.2, 1 or 10 ms, eager or compiled: what watching adds inside a step is not hidden in a wait.
The figures are medians over rounds of the mean step (wall, and CPU of all threads of the process,
which a busy machine disturbs less); intervals are a bootstrap over rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src"
STEPS_MS = (0.2, 1.0, 10.0)
ARMS = ("off", "off again", "monitor", "traceml")
SECONDS = 3.0
ROUNDS = 10
WARM_UP = 50
AGGREGATOR = ("127.0.0.1", 29765)
AGGREGATOR_S = 60.0


def child(arm: str, loops: int, compiled: bool, seconds: float) -> dict[str, float]:
    """One process: the median step, and what else tells something."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    called = torch.compile(model, backend="aot_eager") if compiled else model
    batch = torch.ones(8, 16)
    now = time.perf_counter_ns
    times: list[int] = []
    end = now() + round(seconds * 1e9)

    def body() -> None:
        optimizer.zero_grad()
        called(batch).square().mean().backward()
        optimizer.step()
        for _ in range(loops):
            pass

    def batches():
        while now() < end or len(times) < WARM_UP * 2:
            yield batch

    last = used = 0

    def mark() -> None:
        nonlocal last, used
        at = now()
        if last:
            times.append(at - last)
        if len(times) == WARM_UP:
            used = time.process_time_ns()
        last = at

    if arm == "monitor":
        import torchstone

        with torchstone.monitor("cost", model=model, optimizer=optimizer) as watched:
            for _ in watched.steps(batches()):
                body()
                mark()
    elif arm == "traceml":
        import traceml_ai as traceml

        traceml.init(mode="auto", on_missing_aggregator="raise")  # else it traces nothing
        for _ in batches():
            with traceml.trace_step(model):
                body()
            mark()
    else:
        for _ in batches():
            body()
            mark()
    kept = times[WARM_UP:]
    cpu = time.process_time_ns() - used
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "median_ns": statistics.median(kept),
        "mean_ns": statistics.fmean(kept),
        "cpu_ns": cpu / len(kept),
        "steps": len(kept),
        "rss_bytes": resident,
    }


@contextmanager
def aggregator(python: str, folder: str) -> Iterator[None]:
    """What traceml-ai sends its figures to; its own program, as its users start it."""
    program = Path(python).parent / "traceml"
    if not program.exists():
        yield
        return
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        [program, "serve"], cwd=folder, stdin=nowhere, stdout=nowhere, stderr=nowhere
    ) as process:
        try:
            end = time.monotonic() + AGGREGATOR_S
            while time.monotonic() < end and process.poll() is None:
                with suppress(OSError), socket.create_connection(AGGREGATOR, 1.0):
                    break
                time.sleep(0.2)
            yield
        finally:
            process.terminate()


def calibrate(step_ms: float, compiled: bool, python: str) -> int:
    """Empty loops that fill a step without watching up to this length."""
    none, many = (run("off", n, compiled, 1.0, python)["median_ns"] for n in (0, 10_000))
    return max(0, round((step_ms * 1e6 - none) / max(1.0, (many - none) / 10_000)))


def run(arm: str, loops: int, compiled: bool, seconds: float, python: str) -> dict[str, float]:
    """An arm in a fresh process; empty where it cannot run."""
    interpreter = python if arm == "traceml" else sys.executable
    asked = json.dumps([arm, loops, compiled, seconds])
    with tempfile.TemporaryDirectory(prefix="torchstone-cost-") as folder, ExitStack() as stack:
        if arm == "traceml":
            stack.enter_context(aggregator(python, folder))
        env = {**os.environ, "PYTHONPATH": str(SRC), "XDG_DATA_HOME": folder}
        done = subprocess.run(
            [interpreter, __file__, "--child", asked],
            env=env,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"  {arm}: {last}", file=sys.stderr)
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def interval(ratios: list[float], seed: int = 0) -> tuple[float, float]:
    """95 %, by a bootstrap over rounds."""
    drawn = random.Random(seed)
    means = sorted(statistics.median(drawn.choices(ratios, k=len(ratios))) for _ in range(2000))
    return means[50], means[1949]


def cell(step_ms: float, compiled: bool, rounds: int, seconds: float, python: str) -> None:
    """One setting: a line an arm."""
    found: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    loops = calibrate(step_ms, compiled, python)
    order = random.Random(1)
    for _ in range(rounds):
        for arm in order.sample(ARMS, len(ARMS)):
            one = run(arm, loops, compiled, seconds, python)
            if one:
                found[arm].append(one)
    mode = "compiled" if compiled else "eager"
    print(f"\nstep of {step_ms:g} ms, {mode}, {rounds} rounds of {seconds:g} s")
    base = found["off"]
    for arm in ARMS[1:]:
        pairs = list(zip(base, found[arm], strict=False))
        if len(pairs) < 2:
            print(f"  {arm:<10} not measured")
            continue
        words = [_added(pairs, key, name) for key, name in (("mean_ns", "wall"), ("cpu_ns", "CPU"))]
        print(f"  {arm:<10} {'   '.join(words)}")


def _added(pairs: list[tuple[dict[str, float], dict[str, float]]], key: str, name: str) -> str:
    added = statistics.median(new[key] - old[key] for old, new in pairs) / 1e3
    ratios = [new[key] / old[key] for old, new in pairs]
    low, high = interval(ratios)
    middle = statistics.median(ratios)
    return (
        f"{name} {added:+8.2f} µs a step {(middle - 1) * 100:+6.2f} % "
        f"({(low - 1) * 100:+.2f} to {(high - 1) * 100:+.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one setting, a few seconds")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--python", default=sys.executable, help="has traceml-ai and torch")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(child(*json.loads(asked.child))))
        return
    if asked.quick:
        cell(1.0, False, 2, 1.0, asked.python)
        return
    for compiled in (False, True):
        for step_ms in STEPS_MS:
            cell(step_ms, compiled, asked.rounds, asked.seconds, asked.python)


if __name__ == "__main__":
    main()

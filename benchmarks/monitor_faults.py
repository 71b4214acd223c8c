"""Does the monitor name what is wrong? Ten faults planted in real trainings, and healthy ones.

    python benchmarks/monitor_faults.py                    # the ten faults, about three minutes
    python benchmarks/monitor_faults.py leak nan           # some of them
    python benchmarks/monitor_faults.py --healthy 10       # 36,000 steps of 1 ms each: alarms?

Each is a process of its own with a real loop. A fault is found where an event has the expected
name and cause, and lies at the planted step, or within the tolerance that its row gives. A healthy
run's alarms are its warnings; notes (another process held the core) are none.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SRC = Path(__file__).resolve().parents[1] / "src"
LIMIT_S = 300
HEALTHY_STEPS = 36_000
"""An hour of steps of 100 ms, run at 1 ms."""


@dataclass(frozen=True)
class Expected:
    """What the monitor must say."""

    what: tuple[str, ...]
    """Any of these: where the core is contended from the start, more of it is a drift."""
    cause: str
    step: int
    """The planted one; where it begins at once, the first that is judged."""
    late: int = 0
    """Steps after it that are still right: a share or a slope needs some to be seen."""
    early: int = 0
    """Steps before it: drift is located to a block of steps."""


EXPECTED = {
    "starved": Expected(("starved",), "data", 200, 100),
    "gc": Expected(("gc-share",), "gc", 200, 100),
    "leak": Expected(("leak",), "memory", 20, 300),
    "contended": Expected(("contention", "drift"), "contention", 1000, 600, 100),
    "recompile": Expected(("recompile",), "compile", 60),
    "rank": Expected(("slow-rank",), "forward", 0, 10_000),
    "nan": Expected(("loss",), "loss", 137),
    "dtype": Expected(("dtype",), "dtype", 50),
    "eval": Expected(("eval-mode",), "mode", 80),
    "drift": Expected(("drift",), "forward", 1500, 1500, 200),
}


def make() -> tuple[Any, Any]:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
    model = torch.nn.Sequential(*layers)
    return model, torch.optim.SGD(model.parameters(), lr=1e-4)


def spin(milliseconds: float) -> None:
    """CPU time, not a wait."""
    end = time.thread_time_ns() + round(milliseconds * 1e6)
    while time.thread_time_ns() < end:
        pass


class Loop:
    """A training whose parts a fault replaces."""

    def __init__(self, steps: int, step_ms: float = 1.0) -> None:
        import torch

        self.model, self.optimizer = make()
        self.called: Callable[[Any], Any] = self.model
        self.steps = steps
        self.step_ms = step_ms
        self.batch: Callable[[int], Any] = lambda step: torch.ones(8, 16)
        self.before: Callable[[int], None] = lambda step: None
        self.loss: Callable[[int, Any], Any] = lambda step, loss: loss

    def batches(self) -> Iterator[Any]:
        for step in range(self.steps):
            yield self.batch(step)

    def run(self) -> list[dict[str, Any]]:
        """Its events."""
        import torchstone
        from torchstone.records import to_data

        watched = torchstone.monitor("fault", model=self.model, optimizer=self.optimizer)
        with watched as m:
            for step, batch in enumerate(m.steps(self.batches())):
                self.before(step)
                spin(self.step_ms)
                self.optimizer.zero_grad()
                loss = self.called(batch.float()).square().mean()
                self.loss(step, loss).backward()
                self.optimizer.step()
        return [to_data(event) for event in m.events]


def starved(loop: Loop) -> None:
    plain = loop.batch

    def batch(step: int) -> Any:
        if step >= 200:
            time.sleep(0.002)
        return plain(step)

    loop.batch = batch


def gc_storm(loop: Loop) -> None:
    loop.steps = 600

    def before(step: int) -> None:
        if step >= 200 and step % 5 == 0:
            gc.collect()

    loop.before = before


def leak(loop: Loop) -> None:
    import torch

    loop.steps = 450
    kept: list[Any] = []

    def before(step: int) -> None:
        time.sleep(0.05)
        kept.append(torch.ones(1 << 18))

    loop.before = before


def contended(loop: Loop) -> None:
    loop.steps = 3000
    core = {min(os.sched_getaffinity(0))}
    os.sched_setaffinity(0, core)
    others: list[subprocess.Popen[bytes]] = []

    def before(step: int) -> None:
        if step == 1000:
            program = "import time\nend = time.time() + 60\nwhile time.time() < end: pass"
            others.append(subprocess.Popen([sys.executable, "-c", program]))
        if step == loop.steps - 1:
            others[0].kill()

    loop.before = before


def recompile(loop: Loop) -> None:
    import torch

    loop.steps, loop.step_ms = 400, 5.0
    loop.called = torch.compile(loop.model, backend="eager", dynamic=False)
    loop.batch = lambda step: torch.ones(8 + max(0, min(step - 59, 40)), 16)


def nan(loop: Loop) -> None:
    loop.loss = lambda step, loss: loss * float("nan") if step == 137 else loss


def dtype(loop: Loop) -> None:
    import torch

    plain = loop.batch
    loop.batch = lambda step: plain(step).to(torch.float64 if step >= 50 else torch.float32)


def eval_mode(loop: Loop) -> None:
    loop.before = lambda step: loop.model.train(step < 80)


def drift(loop: Loop) -> None:
    loop.steps, loop.step_ms = 5000, 3.0
    loop.before = lambda step: spin(0.3 * min(1.0, max(0.0, (step - 1500) / 2000)))


PLANT: dict[str, Callable[[Loop], None]] = {
    "starved": starved,
    "gc": gc_storm,
    "leak": leak,
    "contended": contended,
    "recompile": recompile,
    "nan": nan,
    "dtype": dtype,
    "eval": eval_mode,
    "drift": drift,
    "healthy": lambda loop: setattr(loop, "steps", HEALTHY_STEPS),
}
RANKS = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(1600, 8))
for (x,) in torch.utils.data.DataLoader(data, batch_size=4):
    time.sleep(0.06 if dist.get_rank() == 1 else 0.02)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def of_ranks(folder: Path, env: dict[str, str]) -> list[dict[str, Any]]:
    """Two ranks of an unedited script, one of them three times as slow."""
    (folder / "ranks.py").write_text(RANKS)
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    watched = ["-m", "torchstone", "monitor", "ranks.py"]
    subprocess.run(
        [sys.executable, "-m", *launch, *watched],
        cwd=folder,
        env={**env, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=True,
        timeout=LIMIT_S,
    )
    (path,) = Path(env["TORCHSTONE_MONITORS"]).glob("*/rank-0.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [one for one in lines if one["line"] == "event"]


def events_of(name: str) -> list[dict[str, Any]]:
    """Run it; what the monitor found."""
    with tempfile.TemporaryDirectory(prefix="torchstone-fault-") as place:
        env = {**os.environ, "PYTHONPATH": str(SRC), "TORCHSTONE_MONITORS": f"{place}/monitors"}
        if name == "rank":
            return of_ranks(Path(place), env)
        done = subprocess.run(
            [sys.executable, __file__, "--child", name],
            env=env,
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT_S,
        )
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def matches(event: dict[str, Any], expected: Expected) -> bool:
    """Name, cause and step."""
    since = event.get("figures", {}).get("since_step", event["step"])
    right = event["what"] in expected.what and event["cause"] == expected.cause
    return right and expected.step - expected.early <= since <= expected.step + expected.late


def faults(names: list[str]) -> int:
    """A line each; how many were not named."""
    missed = 0
    for name in names:
        events = events_of(name)
        expected = EXPECTED[name]
        hit = next((one for one in events if matches(one, expected)), None)
        missed += hit is None
        print(f"{name:<10} {'named ' if hit else 'MISSED'} {hit['text'] if hit else expected}")
        for one in events if hit is None else ():
            print(f"             {one['step']:>6} {one['what']} ({one['cause']}): {one['text']}")
        sys.stdout.flush()
    return missed


def healthy(runs: int) -> int:
    """A line a run; how many alarms there were."""
    alarms = 0
    for number in range(runs):
        events = events_of("healthy")
        warned = [one for one in events if one["level"] == "warn"]
        alarms += len(warned)
        noted = sorted({one["what"] for one in events if one["level"] == "note"})
        print(
            f"healthy run {number + 1}: {len(warned)} alarms; notes: {', '.join(noted) or 'none'}"
        )
        for one in warned:
            print(f"             {one['step']:>6} {one['what']} ({one['cause']}): {one['text']}")
        sys.stdout.flush()
    print(f"{alarms} alarms in {runs} runs of {HEALTHY_STEPS:,} steps")
    return alarms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *EXPECTED], help="all, or some")
    parser.add_argument("--healthy", type=int, default=0, metavar="RUNS")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        loop = Loop(1200)
        PLANT[asked.child](loop)
        print(json.dumps(loop.run()))
        return
    if asked.healthy:
        sys.exit(healthy(asked.healthy) > 1)
    sys.exit(faults(asked.names or list(EXPECTED)) > 0)


if __name__ == "__main__":
    main()

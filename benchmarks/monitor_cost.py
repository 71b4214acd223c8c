"""What watching a training costs: `torchstone.monitor` on and off, beside traceml-ai.

    python benchmarks/monitor_cost.py --out cost.jsonl             # about ten minutes; goes on
    python benchmarks/monitor_cost.py --quick                      # one setting, seconds
    python benchmarks/monitor_cost.py --python PEER_PYTHON         # it has traceml-ai and torch
    python benchmarks/monitor_cost.py --trainer HF_PYTHON          # HuggingFace's Trainer instead
    python benchmarks/monitor_cost.py --memory 1000000             # memory over so many steps
    python benchmarks/monitor_cost.py --requests 100000            # what a served request costs

A step is a small network and a fixed count of empty loops, calibrated once so that a step without
watching takes 0.2, 1 or 10 ms, eager or compiled: what watching adds inside a step is not hidden in
a wait. `off` is measured twice: `off again` is the A/A control, which shows what this machine can
tell apart. Two ways:

- *processes*: a process an arm and round, with all settings in it; rounds run the arms in random
  order. traceml-ai patches torch for good, so it can be compared in no other way.
- *switched*: in one process, windows of a second with the monitor on, off and off again, in random
  order. The two compared windows share process, memory layout and second, so this resolves
  microseconds. A window is timed from 0.3 s after its monitor was opened: two looks are in it.

Wall is the mean step; CPU is that of all threads of the process, which a busy machine disturbs
less. Medians over rounds or windows; intervals are bootstraps over them. FLOPs are given, so that
the child which counts them once at the start of a training is not in here.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

SRC = Path(__file__).resolve().parents[1] / "src"
CELLS = tuple((ms, compiled) for compiled in (False, True) for ms in (0.2, 1.0, 10.0))
ARMS = ("off", "off again", "monitor", "traceml")
FEWEST = 100
TRAINER_STEPS = 500
"""Of a window, about two seconds."""
CALIBRATION_LOOPS = 10_000
LEAD_S, WINDOW_S = 0.3, 1.0
"""A monitor looks at 0.5 and 1.0 s: twice a second, as it does for good."""
AGGREGATOR = ("127.0.0.1", 29765)
AGGREGATOR_S = 60.0
Figures = dict[str, float]


class Training:
    """The network and its two ways to be called."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        layers = [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.compiled = torch.compile(self.model, backend="aot_eager")
        self.batch = torch.ones(8, 16)

    def body(self, loops: int, compiled: bool) -> Callable[[], None]:
        """One step."""
        called, optimizer, batch = (
            self.compiled if compiled else self.model,
            self.optimizer,
            self.batch,
        )

        def body() -> None:
            optimizer.zero_grad()
            called(batch).square().mean().backward()
            optimizer.step()
            for _ in range(loops):
                pass

        return body

    def batches(self, seconds: float) -> Iterator[Any]:
        """For so long after the lead, but a few at least."""
        now = time.perf_counter_ns
        end = now() + round((LEAD_S + seconds) * 1e9)
        for number in itertools.count():
            if number > FEWEST and now() >= end:
                return
            yield self.batch


class Watch:
    """Times the steps of one window, from a lead after its beginning."""

    def __init__(self) -> None:
        self._from = time.perf_counter_ns() + round(LEAD_S * 1e9)
        self._begin: tuple[int, int] | None = None
        self._seen = 0

    def mark(self) -> None:
        """A step is over."""
        self._seen += 1
        if self._begin is None and time.perf_counter_ns() >= self._from:
            self._begin = (time.perf_counter_ns(), time.process_time_ns())
            self._seen = 0

    def figures(self) -> Figures:
        """Means since the lead, in nanoseconds."""
        assert self._begin is not None
        wall = time.perf_counter_ns() - self._begin[0]
        cpu = time.process_time_ns() - self._begin[1]
        return {"wall": wall / self._seen, "cpu": cpu / self._seen, "steps": self._seen}


def window(arm: str, training: Training, loops: int, compiled: bool, seconds: float) -> Figures:
    """One arm of one setting, in this process."""
    body, watch = training.body(loops, compiled), Watch()
    batches = training.batches(seconds)
    gc.collect()
    if arm == "monitor":
        import torchstone

        opened = torchstone.monitor(
            "cost", model=training.model, optimizer=training.optimizer, flops_per_step=1e4
        )
        with opened as watched:
            for _ in watched.steps(batches):
                body()
                watch.mark()
            return watch.figures()
    if arm == "traceml":
        import traceml_ai as traceml

        for _ in batches:
            with traceml.trace_step(training.model):
                body()
            watch.mark()
        return watch.figures()
    for _ in batches:
        body()
        watch.mark()
    return watch.figures()


def graphs() -> Figures:
    """What torch.compile has made so far."""
    from torch._dynamo.utils import counters

    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
    }


def arm_child(arm: str, loops: list[int], seconds: float) -> list[Figures]:
    """One process: an arm in all settings."""
    if arm == "traceml":
        import traceml_ai as traceml

        traceml.init(mode="auto", on_missing_aggregator="raise")  # else it traces nothing
    training = Training()
    found = []
    for (_, compiled), count in zip(CELLS, loops, strict=False):
        one = window(arm, training, count, compiled, seconds)
        found.append({**one, **graphs()})
    return found


def switched_child(loops: list[int], cycles: int) -> list[list[Figures]]:
    """One process: windows of each arm in turn; figures by setting, cycle and arm."""
    training, drawn = Training(), random.Random(1)
    found: list[list[Figures]] = []
    for (_, compiled), count in zip(CELLS, loops, strict=False):
        window("off", training, count, compiled, WINDOW_S)
        cycle_figures = []
        for _ in range(cycles):
            one: Figures = {}
            for arm in drawn.sample(ARMS[:3], 3):
                for name, value in window(arm, training, count, compiled, WINDOW_S).items():
                    one[f"{arm} {name}"] = value
            cycle_figures.append({**one, **graphs()})
        found.append(cycle_figures)
    return found


def calibrate_child() -> list[int]:
    """Empty loops that fill a step of each setting."""
    training = Training()
    found = []
    for ms, compiled in CELLS:
        none, many = (
            window("off", training, loops, compiled, 0.5)["wall"]
            for loops in (0, CALIBRATION_LOOPS)
        )
        a_loop = max(0.1, (many - none) / CALIBRATION_LOOPS)
        found.append(max(0, round((ms * 1e6 - none) / a_loop)))
    return found


def memory_child(steps: int) -> list[Figures]:
    """Resident memory after each tenth of so many steps."""
    import torch

    import torchstone

    torch.set_num_threads(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch, found = torch.ones(1, 1), []
    with torchstone.monitor("cost", model=model, optimizer=optimizer) as watched:
        for number, one in enumerate(watched.steps(itertools.repeat(batch, steps)), 1):
            optimizer.zero_grad()
            model(one).sum().backward()
            optimizer.step()
            if number % (steps // 10) == 0:
                page = os.sysconf("SC_PAGE_SIZE")
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                found.append({"steps": number, "bytes": pages * page})
    return found


def trainer_child(windows: int) -> list[Figures]:
    """HuggingFace's Trainer on a small GPT-2: one training, the callback switched on and off from
    window to window; figures by cycle and arm."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback
    from transformers import TrainingArguments as Arguments

    import torchstone

    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = {"n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": 100, "n_positions": 32}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
    ids = torch.arange(16) % 100
    arms = _drawn(windows)
    data = [{"input_ids": ids, "labels": ids} for _ in range(8 * TRAINER_STEPS * len(arms))]
    found: list[Figures] = [{} for _ in range(windows)]

    class Switch(TrainerCallback):
        """Opens and closes the callback at the ends of windows."""

        def __init__(self) -> None:
            self._steps = 0
            self._watch = Watch()
            self._callback: Any = None

        def on_step_end(self, *asked: Any, **given: Any) -> None:
            self._watch.mark()
            self._steps += 1
            window, left = divmod(self._steps, TRAINER_STEPS)
            if left:
                return
            for name, value in self._watch.figures().items():
                found[(window - 1) // 3][f"{arms[window - 1]} {name}"] = value
            if self._callback is not None:
                self._callback.on_train_end(*asked, **given)
                self._callback = None
            if window < len(arms) and arms[window] == "monitor":
                self._callback = torchstone.monitor.trainer_callback("cost", flops_per_step=1e6)
                self._callback.on_train_begin(*asked, **given)
            self._watch = Watch()

    with tempfile.TemporaryDirectory() as folder:
        arguments = Arguments(
            folder,
            per_device_train_batch_size=8,
            num_train_epochs=1,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            logging_steps=100,
            disable_tqdm=True,
        )
        Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Switch()]).train()
    return found


def _drawn(cycles: int) -> list[str]:
    """Off, off again and the monitor in random order, so many times; off comes first."""
    drawn = random.Random(1)
    first = ["off", *drawn.sample(ARMS[1:3], 2)]
    return first + [arm for _ in range(cycles - 1) for arm in drawn.sample(ARMS[:3], 3)]


def requests_child(count: int) -> list[Figures]:
    """CPU of a request through an ASGI application that does nothing, in microseconds: plain, with
    the middleware, and `observe` alone; all threads of the process."""
    import asyncio

    import torchstone

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def nowhere(*_: Any) -> None:
        return None

    async def serve(one: Any) -> None:
        for _ in range(count):
            await one({"type": "http"}, nowhere, nowhere)

    def cost(call: Callable[[], object]) -> float:
        began = time.process_time_ns()
        call()
        return (time.process_time_ns() - began) / count / 1e3

    found = []
    with torchstone.monitor.requests("cost") as service:
        watched = service.middleware(app)
        for _ in range(5):
            found.append(
                {
                    "plain": cost(lambda: asyncio.run(serve(app))),
                    "middleware": cost(lambda: asyncio.run(serve(watched))),
                    "observe": cost(lambda: [service.observe(0.001) for _ in range(count)]),
                }
            )
    return found


CHILDREN: dict[str, Callable[..., Any]] = {
    "arm": arm_child,
    "switched": switched_child,
    "calibrate": calibrate_child,
    "memory": memory_child,
    "trainer": trainer_child,
    "requests": requests_child,
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


def run(what: str, *asked: Any, python: str = sys.executable) -> Any:
    """In a fresh process; None where it cannot run."""
    with tempfile.TemporaryDirectory(prefix="torchstone-cost-") as folder, ExitStack() as stack:
        if "traceml" in asked:
            stack.enter_context(aggregator(python, folder))
        env = {**os.environ, "PYTHONPATH": str(SRC), "XDG_DATA_HOME": folder}
        env.pop("TORCHSTONE_MONITORS", None)
        done = subprocess.run(
            [python, __file__, "--child", json.dumps([what, *asked])],
            env=env,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"  {what} {asked[:1]}: {last}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


class Kept:
    """What was measured, a line each; what is there is not measured again."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None
        lines = self._path.read_text().splitlines() if self._path and self._path.exists() else []
        self._known = {json.dumps(key): value for key, value in map(json.loads, lines)}

    def get(self, key: list[Any], make: Callable[[], Any]) -> Any:
        """Measured, or read."""
        text = json.dumps(key)
        if text not in self._known:
            self._known[text] = made = make()
            if self._path is not None and made is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps([key, made]) + "\n")
        return self._known[text]


def interval(values: list[float], seed: int = 0) -> tuple[float, float]:
    """95 %, by a bootstrap of the median."""
    drawn = random.Random(seed)
    medians = sorted(statistics.median(drawn.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[1949]


def added(pairs: Iterable[tuple[float, float]], name: str) -> str:
    """What the second of each pair takes more than the first."""
    pairs = list(pairs)
    more = [(new - old) / 1e3 for old, new in pairs]
    share = statistics.median(new / old - 1 for old, new in pairs) * 100
    low, high = interval(more)
    middle = statistics.median(more)
    return f"{name} {middle:+7.1f} µs ({low:+.1f} to {high:+.1f}), {share:+6.2f} %"


def title(place: int) -> str:
    """Of a setting."""
    ms, compiled = CELLS[place]
    return f"step of {ms:g} ms, {'compiled' if compiled else 'eager'}"


def report_processes(found: dict[str, list[list[Figures]]]) -> None:
    """A line an arm and setting."""
    rounds = len(found["off"])
    for place in range(len(found["off"][0])):
        off = [one[place] for one in found["off"]]
        print(f"\n{title(place)}, {rounds} rounds of processes")
        for arm in ARMS[1:]:
            pairs = list(zip(off, (one[place] for one in found[arm]), strict=False))
            if len(pairs) < 2:
                print(f"  {arm:<10} not measured")
                continue
            words = [added(((a[k], b[k]) for a, b in pairs), k) for k in ("wall", "cpu")]
            made = pairs[-1][1]
            words.append(f"{made['graphs']:.0f} graphs, {made['breaks']:.0f} breaks")
            print(f"  {arm:<10} {'   '.join(words)}")


def report_switched(found: list[list[Figures]]) -> None:
    """A line an arm and setting."""
    for place, cycles in enumerate(found):
        print(f"\n{title(place)}, {len(cycles)} windows each, switched in one process")
        for arm in ARMS[1:3]:
            words = [
                added(((one[f"off {k}"], one[f"{arm} {k}"]) for one in cycles), k)
                for k in ("wall", "cpu")
            ]
            print(f"  {arm:<10} {'   '.join(words)}")
        made = (cycles[0]["graphs"], cycles[-1]["graphs"], cycles[-1]["breaks"])
        print("  graphs {:.0f} in the first cycle, {:.0f} in the last; {:.0f} breaks".format(*made))


def measure_all(kept: Kept, asked: argparse.Namespace) -> None:
    """Both ways, all settings."""
    loops = kept.get(["loops"], lambda: run("calibrate"))
    if asked.cycles:
        found = kept.get(["switched", asked.cycles], lambda: run("switched", loops, asked.cycles))
        report_switched(found)
    order = random.Random(1)
    arms: dict[str, list[list[Figures]]] = {arm: [] for arm in ARMS}
    for number in range(asked.rounds):
        for arm in order.sample(ARMS, len(ARMS)):
            python = asked.python if arm == "traceml" else sys.executable
            one = kept.get(
                ["arm", arm, number, asked.seconds],
                lambda arm=arm, python=python: run("arm", arm, loops, asked.seconds, python=python),
            )
            if one:
                arms[arm].append(one)
    if arms["off"]:
        report_processes(arms)


def measure_trainer(kept: Kept, asked: argparse.Namespace) -> None:
    """Trainer plain, plain again, and with the callback."""
    found = kept.get(
        ["trainer", asked.cycles], lambda: run("trainer", asked.cycles, python=asked.trainer)
    )
    if found is None:
        raise SystemExit(1)
    print(f"HuggingFace's Trainer, {len(found)} windows each of {TRAINER_STEPS} steps")
    for arm in ARMS[1:3]:
        words = [
            added(((one[f"off {k}"], one[f"{arm} {k}"]) for one in found), k)
            for k in ("wall", "cpu")
        ]
        print(f"  {arm:<10} {'   '.join(words)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one setting, a few seconds")
    parser.add_argument("--rounds", type=int, default=8, help="of processes")
    parser.add_argument("--cycles", type=int, default=16, help="of switched windows")
    parser.add_argument("--seconds", type=float, default=1.5, help="a setting and process")
    parser.add_argument("--python", default=sys.executable, help="has traceml-ai and torch")
    parser.add_argument("--trainer", help="an interpreter that has transformers and accelerate")
    parser.add_argument("--memory", type=int, help="steps over which memory is looked at")
    parser.add_argument("--requests", type=int, help="requests that a service answers")
    parser.add_argument("--out", help="a file of what was measured, to go on with")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        what, *given = json.loads(asked.child)
        print(json.dumps(CHILDREN[what](*given)))
        return
    kept = Kept(asked.out)
    if asked.memory:
        for one in kept.get(["memory", asked.memory], lambda: run("memory", asked.memory)):
            print(f"{one['steps']:>10,} steps  {one['bytes'] / 2**20:8.1f} MiB")
    elif asked.requests:
        for one in run("requests", asked.requests):
            print("  ".join(f"{name} {value:.2f} µs" for name, value in one.items()))
    elif asked.trainer:
        measure_trainer(kept, asked)
    elif asked.quick:
        report_switched(run("switched", [20_000], 4))
    else:
        measure_all(kept, asked)


if __name__ == "__main__":
    main()

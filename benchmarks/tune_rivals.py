"""`torchstone tune` beside NVIDIA's aitune: wrong adoptions of planted candidates, gain, wall time.

    tune_rivals.py --aitune PYTHON [--trials 40] [--budget 60] [--out FILE] [--quick] [--limit-s S]
    tune_rivals.py --aitune PYTHON --gain [--budget 300] [--out FILE]

PYTHON is an interpreter with aitune in it. On a machine without a GPU its TensorRT and ONNX Runtime
backends do not run; their libraries may be absent, and its PyTorch backends are what is compared.
Two candidates are planted into both tools: one that answers with zeros and is fast, one that is the
model as it is. Neither may be adopted. Half of the trials are of each; a tuning of ours has both.
`--gain` compares what each finds on the same models: aitune with torch.compile as its candidate,
Torchstone with everything that it has. A trial is a line of `--out` and is not repeated; one that
failed or took too long did not run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGETS = HERE / "tune_targets.py"
MODELS = ("make_float64_well", "make_nchw", "make_row_by_row")
ZEROS, SAME, COMPILE = "zeros", "same", "compile"
LIMIT_S, TIMED_OUT = 3600.0, 124

TECHNIQUES = '''
"""Two planted techniques: zeros instead of the answer, and the model as it is."""
from torchstone.variants.techniques.base import Code, MODEL, Technique, on_model


def planted_zeros(model):
    """Zeros of the right shape, from the second call on without the model."""
    import torch

    forward, made = model.forward, []

    def call(*args):
        if not made:
            made.append(torch.zeros_like(forward(*args)))
        return made[0]

    model.forward = call
    return model


def planted_same(model):
    """Nothing."""
    return model


ZEROS = Technique("planted_zeros", "zeros", on_model(planted_zeros),
                  code=(Code(MODEL, planted_zeros),))
SAME = Technique("planted_same", "nothing", on_model(planted_same),
                 code=(Code(MODEL, planted_same),))
'''

THEIRS = """
import importlib.abc, importlib.machinery, importlib.util, json, sys, time, types

ABSENT = ("tensorrt", "torch_tensorrt", "modelopt", "polygraphy", "triton", "onnxruntime",
          "onnx", "onnxscript", "onnx_ir")


class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args, **options):
        return cls

    def __contains__(cls, one):
        return False


class Absent(types.ModuleType):
    # Stands for a library of its GPU backends: it can be imported, and nothing of it is run.
    __path__ = []
    __version__ = "99.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())  # the last: what is installed comes first
import torch
import aitune.torch as ait
from aitune.torch.backend import TorchEagerBackend, TorchInductorJitBackend

path, name, kind = sys.argv[1:4]
spec = importlib.util.spec_from_file_location("targets", path)
targets = importlib.util.module_from_spec(spec)
spec.loader.exec_module(targets)
model, (x,) = getattr(targets, name)()
model.eval()
CALLS = []


def modes(backend):
    return {name: getattr(backend, name) for name in ("_execution_modes", "_build_mode")}


class Same(TorchEagerBackend):
    locals().update(modes(TorchEagerBackend))

    def _infer(self, *args, **kwargs):
        CALLS.append(1)
        return super()._infer(*args, **kwargs)


class Zeros(Same):
    locals().update(modes(TorchEagerBackend))
    made = None

    def _infer(self, *args, **kwargs):
        CALLS.append(1)
        if self.made is None or self.made[0] != args[0].shape:
            self.made = args[0].shape, torch.zeros_like(TorchEagerBackend._infer(self, *args))
        return self.made[1]


class Compiled(TorchInductorJitBackend):
    locals().update(modes(TorchInductorJitBackend))

    def _infer(self, *args, **kwargs):
        CALLS.append(1)
        return super()._infer(*args, **kwargs)


def timed(call, x, seconds=3.0):
    for _ in range(5):
        call(x)
    best, end = 1e9, time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        call(x)
        best = min(best, time.perf_counter() - began)
    return best


with torch.no_grad():
    before = timed(model, x)
began = time.perf_counter()
backend = {"zeros": Zeros, "same": Same, "compile": Compiled}[kind]()
strategy = ait.MinLatencyStrategy(backends=[backend])
wrapped = ait.Module(model, "planted", strategy=strategy)
ait.tune(wrapped, list(x), batch_sizes=[1, len(x)], device="cpu")
elapsed = time.perf_counter() - began
CALLS.clear()
with torch.no_grad():
    wrapped(x)
    after = timed(wrapped, x)
print("FOUND " + json.dumps({"adopted": bool(CALLS), "speedup": before / after,
                             "elapsed_s": elapsed}))
"""


@dataclass(frozen=True)
class Trial:
    """One tool, one model, one candidate."""

    tool: str
    model: str
    planted: str
    number: int
    adopted: bool | None = None
    speedup: float | None = None
    elapsed_s: float = 0.0
    said: str = ""

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.tool, self.model, self.planted, self.number


def plugins(folder: Path) -> Path:
    """The planted techniques, as an installer would leave them."""
    info = folder / "planted-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "planted_techniques.py").write_text(TECHNIQUES)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    lines = [f"planted_{name} = planted_techniques:{name.upper()}" for name in (ZEROS, SAME)]
    text = "[torchstone.techniques]\n" + "\n".join(lines) + "\n"
    (info / "entry_points.txt").write_text(text)
    return folder


def ours(trial: Trial, budget_s: float, folder: Path, gain: bool) -> list[Trial]:
    """One tuning: with everything, or with the two planted candidates, each a trial of its own."""
    words = [sys.executable, "-m", "torchstone", "tune", f"{TARGETS}:{trial.model}"]
    words += ["--budget", f"{budget_s:g}s", "--seed", str(trial.number), "--json", "-"]
    words += ["--recipe", str(folder / f"recipe_{trial.number}_{trial.model}.py")]
    words += ["--db", str(folder / "rivals.db")]
    for name in () if gain else (ZEROS, SAME):
        words += ["--only", f"planted_{name}"]
    path = os.pathsep.join((str(folder / "site"), str(HERE.parent / "src")))
    began = time.monotonic()
    done = run(words, {**os.environ, "PYTHONPATH": path})
    elapsed = time.monotonic() - began
    if done.returncode:
        planted = (trial.planted,) if gain else (ZEROS, SAME)
        failed = [Trial("torchstone", trial.model, name, trial.number) for name in planted]
        share = elapsed / len(failed)
        return [made(one, None, None, share, done.stderr[-300:]) for one in failed]
    found = json.loads(done.stdout)
    if gain:
        confirmed = [one for one in found["experiments"] if one["stage"] == "confirm"]
        speedup = confirmed[-1]["speedup"] if confirmed else None
        names = found["adopted"]
        return [made(trial, bool(names), speedup, elapsed, ", ".join(names))]
    trials = []
    for name in (ZEROS, SAME):
        told = [one for one in found["experiments"] if one["technique"] == f"planted_{name}"]
        last = f"{told[-1]['decision']}: {told[-1]['reason']}"[:200]
        judged = not told[-1]["decision"].startswith("not ")
        adopted = f"planted_{name}" in found["adopted"] if judged else None
        one = Trial("torchstone", trial.model, name, trial.number)
        trials.append(made(one, adopted, None, elapsed / 2, last))
    return trials


def theirs(trial: Trial, python: str) -> Trial:
    words = [python, "-c", THEIRS, str(TARGETS), trial.model, trial.planted]
    with tempfile.TemporaryDirectory(prefix="aitune-") as folder:
        env = {**os.environ, "AITUNE_CACHE_DIR": folder, "PYTHONPATH": str(HERE.parent / "src")}
        began = time.monotonic()
        done = run(words, env, folder)
    elapsed = time.monotonic() - began
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    if not lines:
        return made(trial, None, None, elapsed, done.stderr[-400:])
    found = json.loads(lines[-1][6:])
    return made(trial, found["adopted"], found["speedup"], elapsed, "")


def run(
    words: list[str], env: dict[str, str], cwd: str | None = None
) -> subprocess.CompletedProcess[str]:
    """What it said; a process that takes too long ends as a failure of this trial alone."""
    try:
        return subprocess.run(
            words, env=env, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        said = f"ended after {LIMIT_S:g} s"
        return subprocess.CompletedProcess(words, TIMED_OUT, "", said)


def made(
    trial: Trial, adopted: bool | None, speedup: float | None, elapsed_s: float, said: str
) -> Trial:
    return Trial(
        trial.tool, trial.model, trial.planted, trial.number, adopted, speedup, elapsed_s, said
    )


def planned(trials: int, gain: bool) -> list[Trial]:
    if gain:
        return [Trial(tool, m, COMPILE, 0) for m in MODELS for tool in ("torchstone", "aitune")]
    found = []
    for number in range(trials // 2):
        model = MODELS[number % len(MODELS)]
        for planted in (ZEROS, SAME):
            found += [Trial(tool, model, planted, number) for tool in ("torchstone", "aitune")]
    return found


def report(done: list[Trial]) -> str:
    lines = []
    for tool in ("torchstone", "aitune"):
        for planted in (ZEROS, SAME, COMPILE):
            some = [one for one in done if one.tool == tool and one.planted == planted]
            if not some:
                continue
            ran = [one for one in some if one.adopted is not None]
            adopted = sum(bool(one.adopted) for one in ran)
            wall = sum(one.elapsed_s for one in some) / len(some)
            lines.append(
                f"{tool:11} {planted:8} adopted {adopted} of {len(ran)} "
                f"({len(some) - len(ran)} did not run), {wall:.0f} s each"
            )
            if planted == COMPILE:
                for one in some:
                    gain = f"{one.speedup:.2f}" if one.speedup else "none"
                    lines.append(f"    {one.model}: gain {gain} {one.said}")
            lines += sorted({f"    {one.said}" for one in some if one.adopted is None})
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--aitune", metavar="PYTHON", default="", help="an interpreter with aitune")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each of our tunings")
    parser.add_argument("--gain", action="store_true", help="what each tool finds")
    parser.add_argument("--out", type=Path, help="a line for each trial that is done")
    parser.add_argument("--quick", action="store_true", help="two trials: does it run?")
    parser.add_argument(
        "--limit-s", type=float, default=math.inf, help="start no new trial after so many seconds"
    )
    asked = parser.parse_args()
    began, done = time.monotonic(), dict[tuple[str, str, str, int], Trial]()
    if asked.out and asked.out.exists():
        for line in asked.out.read_text().splitlines():
            one = Trial(**json.loads(line))
            done[one.key] = one
    budget = 10.0 if asked.quick else asked.budget
    with tempfile.TemporaryDirectory(prefix="rivals-") as name:
        folder = Path(name)
        plugins(folder / "site")
        for trial in planned(2 if asked.quick else asked.trials, asked.gain):
            if trial.key in done or (trial.tool == "aitune" and not asked.aitune):
                continue
            if time.monotonic() - began > asked.limit_s:
                break
            if trial.tool == "aitune":
                some = [theirs(trial, asked.aitune)]
            else:
                some = ours(trial, budget, folder, asked.gain)
            for found in some:
                done[found.key] = found
                if asked.out:
                    with asked.out.open("a") as file:
                        file.write(json.dumps(asdict(found)) + "\n")
                said = f"{found.tool} {found.model} {found.planted}: {found.adopted}"
                print(said, file=sys.stderr)
    print(report(list(done.values())))
    ours_wrong = any(
        one.adopted for one in done.values() if one.tool == "torchstone" and one.planted != COMPILE
    )
    return 1 if ours_wrong else 0


if __name__ == "__main__":
    sys.exit(main())

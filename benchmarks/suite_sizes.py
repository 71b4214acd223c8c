"""How long a step of each suite model takes, and what it costs to import and build it.

    suite_sizes.py hf                           every model of a suite, small scale
    suite_sizes.py hf timm --only resnet18      some of them
    suite_sizes.py hf --compile                 the cold first call of `inductor` too

One process per model, one after another. A finished model is a line of the file and is skipped
next time; `--again` measures it again, and the last line counts. Used to choose sizes: an eager
inference step at small scale is meant to take 5 to 200 ms on two cores. The times are minima of a
few steps in one process, good for that and for nothing finer.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aa_journal import Journal, Row
from aa_report import table

from torchstone.records import MODES, ArmSpec, NotSupported
from torchstone.variants import prepare
from torchstone.workloads import Workload, draw
from torchstone.workloads.load import seed_everything
from torchstone.workloads.suites import BuildSetting, Suite, find_suite, known_suites, load_suite

AIM_MS = (5.0, 200.0)
"""An eager inference step at small scale on two cores."""
WARM_UPS = 2
LEAST_STEPS, MOST_STEPS = 3, 20
STEP_SECONDS = 2.0
MOST_SECONDS = 600
COMPILED = "inductor"
COLUMNS = (
    ("inference_ms", "inference ms"),
    ("training_ms", "training ms"),
    ("parameters", "parameters"),
    ("import_s", "import s"),
    ("build_s", "build s"),
    ("peak_mb", "peak MB"),
    ("compile_inference_s", "cold inference s"),
    ("compile_training_s", "cold training s"),
)


Key = tuple[str, str, str]


@dataclass(frozen=True)
class Job:
    """One model at one scale; the suite by the prefix of its targets."""

    suite: str
    model: str
    scale: str
    compiled: bool = False


def main(words: Sequence[str] | None = None) -> int:
    args = parse(words)
    if args.child:
        print(json.dumps(measure(Job(*args.child, args.compile))))
        return 0
    jobs = [job for name in args.suites for job in jobs_of(suite_of(name), args)]
    with Journal(args.out) as journal:
        known = {} if args.again else latest(journal.rows)
        for job in jobs:
            old = known.get((job.suite, job.model, job.scale))
            if old is None or (job.compiled and not old.get("compiled")):
                row = run(job)
                journal.append(row)
                print(describe(row), flush=True)
        print(report(latest(journal.rows), jobs, args.markdown))
    return 0


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("suites", nargs="*", default=["hf"], help="names or prefixes of suites")
    parser.add_argument("--only", nargs="+", default=[], help="models")
    parser.add_argument("-k", dest="pattern", default="*", help="models whose name fits")
    parser.add_argument("--scale", default="small")
    parser.add_argument("--compile", action="store_true", help=f"time {COMPILED}'s first call too")
    parser.add_argument("--again", action="store_true", help="measure what is in the file again")
    parser.add_argument("--markdown", action="store_true", help="a table to paste")
    parser.add_argument("--out", type=Path, default=Path("build/suite_sizes.jsonl"))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def suite_of(text: str) -> Suite:
    """By prefix, which loads that suite alone, or by name."""
    return load_suite(text) if text in known_suites() else find_suite(text)


def jobs_of(suite: Suite, args: argparse.Namespace) -> list[Job]:
    scale = args.scale if suite.scales else ""
    return [
        Job(suite.prefix, info.name, scale, args.compile)
        for info in suite.models()
        if (not args.only or info.name in args.only) and fnmatch.fnmatch(info.name, args.pattern)
    ]


def latest(rows: Iterable[Row]) -> dict[Key, Row]:
    return {(row["suite"], row["model"], row["scale"]): row for row in rows}


def run(job: Job) -> Row:
    """Measure one model in a process of its own, with empty caches."""
    about = {"suite": job.suite, "model": job.model, "scale": job.scale, "compiled": job.compiled}
    command = [sys.executable, __file__, "--child", job.suite, job.model, job.scale]
    command += ["--compile"] if job.compiled else []
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=MOST_SECONDS, env=env, check=False
            )
        except subprocess.TimeoutExpired:
            return {**about, "error": f"took more than {MOST_SECONDS} s"}
    said = done.stderr.strip()
    if done.returncode:
        last = said.splitlines()[-1] if said else f"exit code {done.returncode}"
        return {**about, "error": last}
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return {**about, **found, **({"stderr": said[-2000:]} if said else {})}


def measure(job: Job) -> Row:
    """In the child: import, build, and a few steps in each mode."""
    suite = load_suite(job.suite)
    try:
        start = time.perf_counter()
        import torch

        torch_s = time.perf_counter() - start
        suite.import_library(job.model)
        import_s = time.perf_counter() - start
        start = time.perf_counter()
        seed_everything(0)
        workload = suite.build(job.model, BuildSetting(job.scale))
        build_s = time.perf_counter() - start
    except NotSupported as error:
        return {"error": f"not supported: {error}"}
    row: Row = {"torch_s": torch_s, "import_s": import_s, "build_s": build_s}
    if isinstance(workload.call, torch.nn.Module):
        row["parameters"] = sum(p.numel() for p in workload.call.parameters())
    target = f"{job.suite}:{job.model}"
    for mode in MODES:
        row |= time_mode(workload, ArmSpec("sizes", target, mode=mode), f"{mode}_ms")
    row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for mode in MODES if job.compiled else ():
        arm = ArmSpec("sizes", target, COMPILED, mode=mode)
        row |= time_mode(workload, arm, f"{COMPILED}_{mode}_ms", f"compile_{mode}_s")
    return {**row, "notes": list(workload.notes), "threads": torch.get_num_threads()}


def time_mode(workload: Workload, arm: ArmSpec, key: str, first_key: str = "") -> Row:
    """The fastest of a few steps in milliseconds, and the first one in seconds."""
    try:
        prepared = prepare(workload, draw(workload, 0), arm)
    except NotSupported as error:
        return {key: None, f"{key}_reason": str(error)}
    first, times, began = 0.0, [], time.perf_counter()
    for seed in range(WARM_UPS + MOST_STEPS):
        inputs = prepared.cast(draw(workload, seed))
        start = time.perf_counter()
        output = prepared.step(*inputs.args, **inputs.kwargs)
        times.append(time.perf_counter() - start)
        first = first or times[0]
        if len(times) == WARM_UPS:
            began = time.perf_counter()
        enough = len(times) >= WARM_UPS + LEAST_STEPS
        if enough and time.perf_counter() - began > STEP_SECONDS:
            break
    found: Row = {key: 1e3 * min(times[WARM_UPS:])}
    if first_key:
        found[first_key] = first
    loss = getattr(output, "loss", None)
    if loss is None and arm.mode == "training":
        loss = output
    value = 0.0 if loss is None else float(loss.detach())
    if not math.isfinite(value):
        found[f"{key}_reason"] = f"the loss is {value}"
    return found


def describe(row: Row) -> str:
    if "error" in row:
        return f"{row['model']}: {row['error']}"
    inference, training = row.get("inference_ms"), row.get("training_ms")
    return f"{row['model']}: {shown(inference)} ms, training {shown(training)} ms"


def name_of(row: Row) -> str:
    scale = f"@{row['scale']}" if row["scale"] else ""
    return f"{row['suite']}:{row['model']}{scale}"


def report(known: Mapping[Key, Row], jobs: Sequence[Job], markdown: bool) -> str:
    rows = [known[key] for job in jobs if (key := (job.suite, job.model, job.scale)) in known]
    columns = [(key, title) for key, title in COLUMNS if any(key in row for row in rows)]
    lines = [[name_of(row), *(shown(row.get(k)) for k, _ in columns), remark(row)] for row in rows]
    return table(["model", *(title for _, title in columns), ""], lines, markdown)


def remark(row: Row) -> str:
    if "error" in row:
        return str(row["error"])
    reasons = [str(value) for key, value in row.items() if key.endswith("_reason")]
    step = row.get("inference_ms")
    if row["scale"] == "small" and step is not None and not AIM_MS[0] <= step <= AIM_MS[1]:
        reasons.append(f"not within {AIM_MS[0]:g} to {AIM_MS[1]:g} ms")
    if row.get("stderr"):
        reasons.append("spoke on stderr")
    return "; ".join(reasons)


def shown(value: Any) -> str:
    if value is None:
        return "–"
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:.3g}"
        if value < 100
        else f"{value:.0f}"
    )


if __name__ == "__main__":
    sys.exit(main())

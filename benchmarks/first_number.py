"""How long one waits for a first figure, and for an answer, beside what people use otherwise.

Each target is a pair whose second does 30 % more, and a small GPT in eager against inductor. Wall
time from the start of the process until the first figure is printed, and until it ends with the
ratio: `torchstone bench --fast`, a plain script (one process, alternating calls),
`torch.utils.benchmark`, and `python -m timeit`. One thread each. In rounds of random order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from aa_report import table

HERE = Path(__file__).resolve().parent
FUNCTIONS, MODELS = "first_number_functions", "first_number_models"
TIMES, PLUS_S = 2.0, 2.0
"""The aim: the first figure comes within so many times the script's, plus so many seconds."""
DECIDED_S, COMPILED_S = 15.0, 40.0
"""The aims for the verdict, without and with a compiler."""
OURS, SCRIPT, TORCH, TIMEIT = "torchstone", "plain script", "torch.utils.benchmark", "timeit"
PAIRS = {
    "10 µs function": ("short", "short_more"),
    "1 ms": ("make_1ms", "make_1ms_more"),
    "10 ms": ("make_10ms", "make_10ms_more"),
    "100 ms": ("make_100ms", "make_100ms_more"),
    "small GPT, inductor": ("make_gpt", ""),
}
"""Baseline and the other; without another it is the baseline compiled by inductor."""
PREPARE = """
import sys, time; sys.path.insert(0, {here!r})
from {module} import build
base = build({base!r})
"""
OTHER = """
import torch; torch.set_num_threads(1)
other = torch.compile(base) if {compiled} else build({other!r})
"""
SCRIPT_CODE = """
base()
def once(f):
    began = time.perf_counter(); f(); return time.perf_counter() - began
took = once(base)
number = max(1, int(0.001 / took))
def sample(f):
    return once(lambda: [f() for _ in range(number)]) / number
print("first", sample(base), flush=True)
{other}
other()
pairs = [(sample(base), sample(other)) for _ in range(30)]
from statistics import median
print("ratio", median(b / a for a, b in pairs), flush=True)
"""
TORCH_CODE = """
from torch.utils.benchmark import Timer
def timed(f):
    return Timer("f()", globals={{"f": f}}, num_threads=1).blocked_autorange(min_run_time=1).median
first = timed(base)
print("first", first, flush=True)
{other}
other()
print("ratio", timed(other) / first, flush=True)
"""


@dataclass(frozen=True)
class Waited:
    """One run of one tool on one target: seconds from the start of the process."""

    target: str
    tool: str
    first_s: float | None
    """Until the first figure; None where none came."""
    ratio_s: float | None
    """Until the first ratio, provisional or not."""
    final_s: float
    ratio: float | None = None
    """Time of the other ÷ time of the baseline."""
    verdict: str = ""


def lines_of(command: Sequence[str], env: dict[str, str]) -> Iterator[tuple[float, str]]:
    """Each line with the time since the start at which it came; standard error with the rest."""
    began = time.monotonic()
    with subprocess.Popen(
        list(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield time.monotonic() - began, line.rstrip("\n")
    if process.returncode:
        raise RuntimeError(f"{command[:4]} ended with {process.returncode}")
    yield time.monotonic() - began, ""


def commands(target: str, folder: Path) -> dict[str, list[str]]:
    """What each tool is started with."""
    base, other = PAIRS[target]
    model = base.startswith("make")
    module = MODELS if model else FUNCTIONS
    prepare = PREPARE.format(here=str(HERE), module=module, base=base)
    make_other = OTHER.format(compiled=not other, other=other)
    if not model:  # nothing of it needs torch, so a script would not import it
        make_other = f"other = build({other!r})"
    python = sys.executable
    call = "" if model else "()"
    named = [f"{HERE / module}.py:{name}{call}" for name in (base, other) if name]
    ours = [python, "-m", "torchstone", "bench", *named, "--fast", "--threads", "1", "--no-save"]
    ours += ["--json", str(folder / "ours.json"), *(() if other else ("--vs", "inductor"))]
    found = {
        OURS: ours,
        SCRIPT: [python, "-c", prepare + SCRIPT_CODE.format(other=make_other)],
        TORCH: [python, "-c", prepare + TORCH_CODE.format(other=make_other)],
    }
    if other:
        found[TIMEIT] = [python, "-m", "timeit", "-s", prepare, "base()"]
    return found


def wait_for(target: str, tool: str, command: Sequence[str], folder: Path) -> Waited:
    """Run it once."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    cache = folder / "inductor"
    shutil.rmtree(cache, ignore_errors=True)  # nobody finds the other's compiled code
    env = {**os.environ, **one, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    first = ratio_at = ratio = None
    end, verdict = 0.0, ""
    for at, line in lines_of(command, env):
        end = at
        figure = line.startswith("first ") or "provisional:" in line or "loop" in line
        compared = line.startswith("ratio ") or ("provisional:" in line and "×" in line)
        first = at if first is None and figure else first
        ratio_at = at if ratio_at is None and compared else ratio_at
        if found := re.match(r"ratio (\S+)", line):
            ratio = float(found[1])
    if tool == OURS:
        (compared_arms,) = json.loads((folder / "ours.json").read_text())["comparisons"]
        ratio, verdict = compared_arms["time_ratio"], compared_arms["verdict"]
    if tool == TIMEIT:
        first = end  # nothing before the end, and the other has to be timed by another command
    return Waited(target, tool, first, ratio_at, end, ratio, verdict)


def measure(
    targets: Sequence[str], rounds: int, tools: Sequence[str], seed: int = 0
) -> Iterator[Waited]:
    """Every tool on every target once a round, in random order."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="first-number-") as name:
        folder = Path(name)
        for _ in range(rounds):
            todo = [(t, tool) for t in targets for tool in commands(t, folder) if tool in tools]
            chance.shuffle(todo)
            for target, tool in todo:
                print(f"{target}: {tool}", file=sys.stderr, flush=True)
                yield wait_for(target, tool, commands(target, folder)[tool], folder)


def stored(path: Path | None) -> list[Waited]:
    """What an earlier call wrote: its rounds count with those of this one."""
    if path is None or not path.exists():
        return []
    return [Waited(**one) for one in json.loads(path.read_text("utf-8"))["runs"]]


def as_json(found: Sequence[Waited]) -> str:
    """Every run, and the aims over all of them."""
    record = {"runs": [asdict(one) for one in found], "aims": [asdict(one) for one in aims(found)]}
    return json.dumps(record, indent=1)


@dataclass(frozen=True)
class Aim:
    """What is asked of a target, what was seen, and whether that is enough."""

    what: str
    seen: str
    met: bool


def _middle(found: Sequence[Waited], target: str, tool: str, name: str) -> float | None:
    values = [getattr(one, name) for one in found if (one.target, one.tool) == (target, tool)]
    known = [value for value in values if value is not None]
    return median(known) if known else None


def aims(found: Sequence[Waited]) -> list[Aim]:
    """By medians over the rounds; a verdict must be right every time."""
    evaluated = []
    for target, (_, other) in PAIRS.items():
        ours = [one for one in found if (one.target, one.tool) == (target, OURS)]
        script = _middle(found, target, SCRIPT, "first_s")
        first, final = (_middle(found, target, OURS, name) for name in ("first_s", "final_s"))
        if script is not None and final is not None:
            limit = TIMES * script + PLUS_S
            seen = "none" if first is None else f"{first:.1f} s"
            met = first is not None and first <= limit
            evaluated.append(Aim(f"{target}: first figure within {limit:.1f} s", seen, met))
        if final is not None:
            limit = DECIDED_S if other else COMPILED_S
            right = [one.verdict == ("slower" if other else "faster") for one in ours]
            seen = f"{final:.1f} s, {sum(right)} of {len(right)} verdicts right"
            what = f"{target}: decided in under {limit:g} s"
            evaluated.append(Aim(what, seen, final < limit and all(right)))
    return evaluated


def text_of(found: Sequence[Waited], markdown: bool) -> str:
    """Medians by target and tool, then the aims."""

    def shown(value: float | None, form: str = "{:.1f} s") -> str:
        return "–" if value is None else form.format(value)

    body = []
    for target, tool in dict.fromkeys((one.target, one.tool) for one in sorted(found, key=_place)):
        verdicts = {one.verdict for one in found if (one.target, one.tool) == (target, tool)}
        times = (_middle(found, target, tool, name) for name in ("first_s", "ratio_s", "final_s"))
        ratio = shown(_middle(found, target, tool, "ratio"), "{:.2f}")
        body.append((target, tool, *map(shown, times), ratio, ", ".join(filter(None, verdicts))))
    head = ("target", "by", "first figure", "first ratio", "end", "time ratio", "verdict")
    evaluated = [(aim.what, aim.seen, "met" if aim.met else "not met") for aim in aims(found)]
    parts = [table(head, body, markdown), table(("aim", "seen", "verdict"), evaluated, markdown)]
    return "\n\n".join(parts)


def _place(one: Waited) -> tuple[int, int]:
    return list(PAIRS).index(one.target), (OURS, SCRIPT, TORCH, TIMEIT).index(one.tool)


def main() -> None:
    """Measure, print, and write the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one target, once: that it works")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(PAIRS), action="append", help="repeatable")
    parser.add_argument("--tool", choices=[OURS, SCRIPT, TORCH, TIMEIT], action="append")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument(
        "--out", type=Path, help="also write the JSON here; adds to one that is there"
    )
    args = parser.parse_args()
    targets = args.only or (list(PAIRS)[:1] if args.quick else list(PAIRS))
    tools = args.tool or [OURS, SCRIPT, TORCH, TIMEIT]
    found = stored(args.out)
    for one in measure(targets, 1 if args.quick else args.rounds, tools, seed=len(found)):
        found.append(one)
        if args.out:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(as_json(found) + "\n", encoding="utf-8")
    print(as_json(found) if args.json else text_of(found, args.markdown))


if __name__ == "__main__":
    main()

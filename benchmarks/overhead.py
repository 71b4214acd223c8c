"""What measuring itself costs: per timed call, and at start-up.

All figures are ratios from one interleaved run, because absolute times on a shared machine say
little. Per call: the code that truly times (`torchstone.measure`), in this process, with the same
number of executions for every tool. Start-up: whole processes, `--help` against a bare
interpreter.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import random
import re
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from aa_report import table

from torchstone.measure.arm import compile_statement
from torchstone.measure.loops import Samples, fill, fill_without_gc, statement_block, step_block
from torchstone.records import Statement
from torchstone.workloads import Inputs

MOST_STATEMENT = 1.1
"""The aim: an empty statement costs at most this many times what `timeit` says."""
MOST_START = 4.0
"""The aim: `torchstone --help` takes less than this many bare interpreters."""
FORBIDDEN = ("torch", "numpy")
NOT_INSTALLED = "not installed"
BARE = "python -c pass"
_IMPORT_LINE = re.compile(r"import time:.*\|\s*(\S+)$")

Sampler = Callable[[], float]


@dataclass(frozen=True)
class Cost:
    """One way of doing something, against the first way in its group."""

    group: str
    name: str
    floor_s: float | None = None
    median_s: float | None = None
    ratio: float | None = None
    """Floor against floor: noise only adds time."""
    typical_ratio: float | None = None
    """The median over rounds of the ratio within a round, and its quartiles."""
    quartiles: tuple[float, float] | None = None
    note: str = ""


@dataclass(frozen=True)
class Aim:
    """What is asked, what was seen."""

    what: str
    seen: str
    met: bool


def in_rounds(samplers: Mapping[str, Sampler], rounds: int) -> dict[str, list[float]]:
    """Every sampler once a round, in random order, so that drift falls on all alike."""
    chance = random.Random(1)
    for sample in samplers.values():
        sample()
    times: dict[str, list[float]] = {name: [] for name in samplers}
    for _ in range(rounds):
        order = list(samplers)
        chance.shuffle(order)
        for name in order:
            times[name].append(samplers[name]())
    return times


def costs(group: str, times: Mapping[str, Sequence[float]]) -> list[Cost]:
    """Ratios to the first one."""
    base = next(iter(times.values()))
    found = []
    for name, values in times.items():
        ratios = sorted(value / other for value, other in zip(values, base, strict=True))
        found.append(
            Cost(
                group,
                name,
                min(values),
                median(values),
                min(values) / min(base),
                median(ratios),
                (ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]),
            )
        )
    return found


def statement_costs(number: int, rounds: int) -> list[Cost]:
    """An empty statement, per execution."""
    plain = timeit.Timer("pass")
    samplers: dict[str, Sampler] = {
        "timeit": lambda: plain.timeit(number) / number,
        "torchstone timeit": our_statement("pass", number),
    }
    missing = []
    if importlib.util.find_spec("torch"):
        from torch.utils.benchmark import Timer

        theirs = Timer("pass")
        samplers["torch.utils.benchmark"] = lambda: theirs.timeit(number).times[0]
    else:
        missing = [Cost("empty statement", "torch.utils.benchmark", note=NOT_INSTALLED)]
    return costs("empty statement", in_rounds(samplers, rounds)) + missing


def our_statement(stmt: str, number: int) -> Sampler:
    """The block that a worker times, filled as in a turn."""
    block = statement_block(compile_statement(Statement(stmt)), number, "wall")

    def sample() -> float:
        buffers = Samples(1, 1)
        fill_without_gc(buffers, block, lambda: 0, lambda: None)
        return buffers.wall[0] / 1e9 / number

    return sample


def step_costs(number: int, rounds: int) -> list[Cost]:
    """A call of a function that does nothing: in a bare loop, in our blocks, and singly."""

    def nothing() -> None:
        pass

    block = step_block(nothing, [Inputs(()), Inputs(())], number)
    single = step_block(nothing, [Inputs(()), Inputs(())], 1)
    samples = min(number, 1000)

    def bare() -> float:
        started = time.perf_counter()
        for _ in itertools.repeat(None, number):
            nothing()
        return (time.perf_counter() - started) / number

    def ours() -> float:
        buffers = Samples(1, 1)
        fill(buffers, block, lambda: 0, lambda: None)
        return buffers.wall[0] / 1e9 / number

    def ours_single() -> float:
        buffers = Samples(samples, samples)
        fill(buffers, single, lambda: 0, lambda: None)
        return median(buffers.wall) / 1e9

    samplers = {
        "bare loop": bare,
        "torchstone, in blocks": ours,
        "torchstone, one call a sample": ours_single,
    }
    found = costs("empty step", in_rounds(samplers, rounds))
    note = "holds two readings of the clock; used from 0.25 ms a step up"
    return [*found[:-1], Cost(**{**asdict(found[-1]), "note": note})]


def start_commands() -> dict[str, list[str] | None]:
    """The commands, None for what is not installed."""
    python = sys.executable
    return {
        BARE: [python, "-c", "pass"],
        "torchstone --help": [python, *our_script(), "--help"],
        "python -m timeit -h": [python, "-m", "timeit", "-h"],
        "pyperf --help": [python, "-m", "pyperf", "--help"] if has("pyperf") else None,
        "asv --help": [python, "-m", "asv", "--help"] if has("asv") else None,
    }


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def our_script() -> list[str]:
    """The installed command, or what it does where there is none."""
    script = Path(sys.executable).parent / "torchstone"
    if script.exists():
        return [str(script)]
    return ["-c", "import sys; from torchstone.cli import main; sys.exit(main())"]


def start_costs(rounds: int) -> list[Cost]:
    """Whole processes, from start to end."""

    # Compiling the source again at every start is nobody's normal life.
    env = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def timed(command: list[str]) -> Sampler:
        def sample() -> float:
            started = time.perf_counter()
            subprocess.run(command, check=False, capture_output=True, env=env)
            return time.perf_counter() - started

        return sample

    commands = start_commands()
    samplers = {name: timed(command) for name, command in commands.items() if command}
    missing = [
        Cost("start-up", name, note=NOT_INSTALLED)
        for name, command in commands.items()
        if not command
    ]
    return costs("start-up", in_rounds(samplers, rounds)) + missing


def imported_by_help() -> list[str]:
    """Which of the heavy packages `torchstone --help` imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *our_script(), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = map(_IMPORT_LINE.match, done.stderr.splitlines())
    modules = {match.group(1).split(".")[0] for match in lines if match}
    if "torchstone" not in modules:
        raise RuntimeError("the list of imports cannot be read")
    return sorted(modules & set(FORBIDDEN))


def aims(found: Sequence[Cost], imported: Sequence[str]) -> list[Aim]:
    """Evaluated on floors, which noise does not move."""
    ratio = {cost.name: cost.ratio for cost in found}
    statement = ratio["torchstone timeit"] or float("inf")
    start = ratio["torchstone --help"] or float("inf")
    return [
        Aim(
            f"empty statement within {MOST_STATEMENT}x of timeit",
            f"{statement:.3f}x",
            statement <= MOST_STATEMENT,
        ),
        Aim(f"start-up under {MOST_START:g} bare interpreters", f"{start:.2f}", start < MOST_START),
        Aim(
            "--help imports neither torch nor numpy", ", ".join(imported) or "neither", not imported
        ),
    ]


def text_of(found: Sequence[Cost], evaluated: Sequence[Aim], markdown: bool) -> str:
    """Both tables."""
    head = ("what", "by", "floor", "ratio", "typical ratio (quartiles)", "note")
    body = [
        (cost.group, cost.name, _time(cost.floor_s), *_ratios(cost), cost.note) for cost in found
    ]
    verdicts = [(aim.what, aim.seen, "met" if aim.met else "not met") for aim in evaluated]
    parts = [table(head, body, markdown), table(("aim", "seen", "verdict"), verdicts, markdown)]
    return "\n\n".join(parts)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{1e9 * seconds:.2f} ns" if seconds < 1e-6 else f"{1e3 * seconds:.1f} ms"


def _ratios(cost: Cost) -> tuple[str, str]:
    if cost.ratio is None or cost.typical_ratio is None or cost.quartiles is None:
        return "–", "–"
    low, high = cost.quartiles
    return f"{cost.ratio:.3f}", f"{cost.typical_ratio:.3f} ({low:.3f}–{high:.3f})"


def main() -> None:
    """Measure, print, and write the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that it works")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args()
    number, rounds, starts = (20_000, 7, 2) if args.quick else (1_000_000, 41, 15)
    found = statement_costs(number, rounds)
    found += step_costs(number // 10, rounds)
    found += start_costs(starts)
    evaluated = aims(found, imported_by_help())
    data = json.dumps(
        {"costs": [asdict(cost) for cost in found], "aims": [asdict(aim) for aim in evaluated]},
        indent=1,
    )
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(data + "\n", encoding="utf-8")
    print(data if args.json else text_of(found, evaluated, args.markdown))


if __name__ == "__main__":
    main()

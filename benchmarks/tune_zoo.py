"""Does `torchstone tune` find planted inefficiencies, and leave alone what is well made?

    tune_zoo.py [--only WORD] [--budget 300] [--few] [--out FILE] [--quick] [--limit-s SECONDS]

Each planted target is tuned, then measured beside the same target made well by hand, and its recipe
beside the planted target once more, from another seed: a recipe that is slower there, or answers
wrongly, is a wrong adoption. The gain is the time saved, as a share of the hand-made one's.
A remedy counts as found where a technique that can bring it was adopted, or where the ledger names
it and no technique can apply it. `--out` gets a line for each target that is done, and those are
not done again. `--few` tries the remedy and two techniques that do not help, for lack of time. Exit
code 1 if an aim is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from aa_report import table

from torchstone.conductor import Settings
from torchstone.lab.bench import measure
from torchstone.lab.recording import Recorder
from torchstone.lab.request import BenchRequest, make_arms
from torchstone.lab.tune import TuneRequest, recipe_arm, tune
from torchstone.records import ArmSpec, Result, Tuning

HERE = Path(__file__).resolve().parent / "tune_targets.py"
COMPILERS = ("compile", "compile_dynamic", "compile_max_autotune", "compile_freezing")
COMPILERS += ("compile_cpp_wrapper", "compile_blocks", "jit_trace")
DECOYS = ("gc_freeze", "inference_mode")
"""Techniques that change little or nothing."""
SEED = 7
EVALUATED = 6.0
"""Each comparison afterwards has at most this part of a tuning's budget."""


@dataclass(frozen=True)
class Entry:
    """A target, what made it slow, and what would count as finding that."""

    name: str
    target: str
    well: str = ""
    """The same made well by hand; empty where nothing helps."""
    remedies: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    """Titles of findings that name the remedy where no technique can apply it."""
    mode: str = "inference"
    threads: int | None = None
    well_threads: int | None = None
    allow: str = "tolerance"
    metric: str = ""
    few: tuple[str, ...] = ("compile", "gc_freeze")
    """What is tried with --quick."""


PYTHON = ("Python and dispatch between small ops",)
ENTRIES = (
    Entry(
        "loop over the batch",
        "make_row_by_row",
        "make_row_by_row_well",
        COMPILERS,
        ("A Python loop over the batch", *PYTHON),
        few=("compile",),
    ),
    Entry("tiny ops", "make_tiny_ops", "make_tiny_ops_well", COMPILERS, few=("compile",)),
    Entry(
        "NCHW convolutions",
        "make_nchw",
        "make_nchw_well",
        ("channels_last", *COMPILERS),
        few=("channels_last",),
    ),
    Entry(
        "for-loop Adam",
        "make_loop_adam",
        "make_loop_adam_well",
        ("fused_optimizer", "foreach_optimizer"),
        mode="training",
        threads=1,
        well_threads=1,
        few=("fused_optimizer",),
    ),
    Entry(
        "gradients left on",
        "grad_left_on()",
        "grad_left_on_well()",
        ("no_grad", "inference_mode", *COMPILERS),
        few=("no_grad",),
    ),
    Entry(
        "64 threads",
        "make_matmul",
        "make_matmul",
        ("threads_all", "threads_physical", "threads_one"),
        threads=64,
        well_threads=2,
        few=("threads_all",),
    ),
    Entry(
        "one thread",
        "make_matmul",
        "make_matmul",
        ("threads_all", "threads_physical"),
        threads=1,
        well_threads=2,
        few=("threads_all",),
    ),
    Entry("float64", "make_float64", "make_float64_well", ("float32",), few=("float32",)),
    Entry(
        "starving loader",
        "make_starving",
        "make_starving_well",
        ("loader_worker", "loader_workers"),
        ("Waiting for data",),
        few=("loader_workers",),
    ),
    Entry(
        "item in every step",
        "make_items",
        "make_items_well",
        COMPILERS,
        ("Single values read in a loop", *PYTHON),
    ),
    Entry("pointwise chain", "make_pointwise", "make_pointwise_well", COMPILERS, few=("compile",)),
    Entry(
        "train mode",
        "train_mode()",
        "train_mode_well()",
        ("eval_mode",),
        allow="metric",
        metric="finite",
        few=("eval_mode",),
    ),
    Entry(
        "recomputed mask",
        "make_masked",
        "make_masked_well",
        COMPILERS,
        ("The same value computed again", "Small kernels, one after the other"),
        few=("compile",),
    ),
    Entry(
        "strided products",
        "make_strided",
        "make_strided_well",
        COMPILERS,
        ("Inputs that are not contiguous", "Layout conversions and copies"),
        few=("compile",),
    ),
    Entry(
        "giant batch",
        "make_giant_batch",
        "make_giant_batch_well",
        ("micro_batches_4", "micro_batches_16", *COMPILERS),
        few=("micro_batches_16",),
    ),
    Entry("matrix product", "make_matmul", few=("inference_mode",)),
    Entry("sort", "make_sort"),
    Entry("FFT", "make_fft"),
    Entry("Cholesky", "make_cholesky"),
    Entry("cumulative sum", "make_cumsum"),
)


@dataclass(frozen=True)
class Row:
    """What came of an entry."""

    name: str
    planted: bool
    found: bool
    adopted: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    speedup: float | None = None
    hand: float | None = None
    share: float | None = None
    """Of the time that the hand-made one saves."""
    wrong: str = ""
    reproduced: bool | None = None
    elapsed_s: float = 0.0
    tuning: dict[str, Any] = field(default_factory=dict)


def target(name: str) -> str:
    return f"{HERE}:{name}"


def measured(
    arms: list[ArmSpec], recorder: Recorder, budget_s: float, independent: bool = False
) -> Result:
    settings = Settings(budget_s=budget_s, seed=SEED, independent=independent)
    some = [replace(arm, seed=SEED) for arm in arms]
    return measure(some, settings, recorder, None, (), "bench", "tune zoo")


def run(entry: Entry, db: str, budget_s: float, only: tuple[str, ...]) -> Row:
    asked = BenchRequest((target(entry.target),), mode=entry.mode, threads=entry.threads)
    recorder = Recorder(db)
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        recipe = str(Path(folder) / "recipe.py")
        found = tune(
            TuneRequest(
                asked,
                allow=entry.allow,
                metric=target(entry.metric) if entry.metric else "",
                budget_s=budget_s,
                recipe=recipe,
                only=only,
            ),
            recorder,
        )
        if found.state == "interrupted":
            raise KeyboardInterrupt  # half a tuning says nothing
        return evaluate(entry, found, recipe, recorder, min(15.0, budget_s / EVALUATED))


def evaluate(entry: Entry, found: Tuning, recipe: str, recorder: Recorder, budget_s: float) -> Row:
    """Against the hand-made one, and once more against the planted one."""
    base = replace(
        make_arms(
            BenchRequest(
                (target(entry.target),),
                mode=entry.mode,
                threads=entry.threads,
                allocator="default",
            )
        )[0],
        name="planted",
    )
    confirmed = found.confirmation
    row = Row(
        entry.name,
        bool(entry.well),
        found=bool(set(entry.remedies) & set(found.adopted)),
        adopted=found.adopted,
        named=tuple(one for one in entry.findings if any(one in said for said in found.findings)),
        speedup=confirmed.speedup if confirmed else None,
        elapsed_s=found.elapsed_s,
    )
    row = replace(row, found=row.found or bool(row.named))
    if found.adopted and Path(recipe).exists():
        again = measured([base, recipe_arm(base, recipe)], recorder, budget_s)
        comparison, outcome = again.comparisons[0], again.arms[1].outcome
        if not outcome.comparable:
            row = replace(row, wrong=f"{outcome.value}: {again.arms[1].detail.message}")
        elif comparison.verdict.value == "slower":
            row = replace(row, wrong=f"slower: {comparison.speedup:.3g} times as fast")
        row = replace(row, speedup=comparison.speedup, reproduced=not row.wrong)
    if entry.well:
        well = replace(
            base,
            name="by hand",
            target=target(entry.well),
            threads=entry.well_threads or entry.threads,
        )
        hand = measured([base, well], recorder, budget_s, True).comparisons[0].speedup
        share = None
        if hand and hand > 1:
            share = (1 - 1 / (row.speedup or 1.0)) / (1 - 1 / hand)
        row = replace(row, hand=hand, share=share)
    return row


def report(rows: list[Row]) -> str:
    head = ("", "target", "adopted", "named", "gain", "by hand", "share", "wrong")
    lines = [
        (
            ("found" if row.found else "missed")
            if row.planted
            else ("alone" if not row.adopted else "adopted"),
            row.name,
            ", ".join(row.adopted),
            ", ".join(row.named),
            f"{row.speedup:.2f}" if row.speedup else "–",
            f"{row.hand:.2f}" if row.hand else "–",
            f"{row.share:.0%}" if row.share is not None else "–",
            row.wrong,
        )
        for row in rows
    ]
    planted = [row for row in rows if row.planted]
    enough = sum((row.share or 0.0) >= 0.8 for row in planted)
    alone = [row for row in rows if not row.planted]
    return "\n".join(
        [
            table(head, lines, markdown=False),
            "",
            f"remedy found or named: {sum(row.found for row in planted)} of {len(planted)}",
            f"at least 80 % of the gain by hand: {enough} of {len(planted)}",
            f"left alone: {sum(not row.adopted for row in alone)} of {len(alone)}",
            f"wrong adoptions: {sum(bool(row.wrong) for row in rows)}",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="targets whose name has this word")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for each tuning")
    parser.add_argument("--out", type=Path, help="a line for each target that is done")
    parser.add_argument("--few", action="store_true", help="the remedy and two others alone")
    parser.add_argument("--quick", action="store_true", help="few techniques, short: does it run?")
    parser.add_argument(
        "--limit-s", type=float, default=math.inf, help="start no new target after so many seconds"
    )
    asked = parser.parse_args()
    began, done = time.monotonic(), dict[str, Row]()
    if asked.out and asked.out.exists():
        for line in asked.out.read_text().splitlines():
            row = Row(**json.loads(line))
            done[row.name] = replace(row, adopted=tuple(row.adopted), named=tuple(row.named))
    with tempfile.TemporaryDirectory(prefix="zoo-db-") as folder:
        for entry in ENTRIES:
            if asked.only not in entry.name or entry.name in done:
                continue
            if time.monotonic() - began > asked.limit_s:
                break
            budget = 20.0 if asked.quick else asked.budget
            few = entry.few if asked.quick else (*entry.few, *DECOYS) if asked.few else ()
            row = run(entry, str(Path(folder) / "zoo.db"), budget, tuple(dict.fromkeys(few)))
            done[entry.name] = row
            print(f"{entry.name}: {', '.join(row.adopted) or 'nothing'}", file=sys.stderr)
            if asked.out:
                with asked.out.open("a") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
    rows = list(done.values())
    print(report(rows))
    planted = [row for row in rows if row.planted]
    right = all(row.found for row in planted) and not any(row.wrong for row in rows)
    return 0 if right and not any(row.adopted for row in rows if not row.planted) else 1


if __name__ == "__main__":
    sys.exit(main())

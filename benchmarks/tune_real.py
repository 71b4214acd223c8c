"""`torchstone tune` beside plain torch.compile on models of huggingface and timm.

    tune_real.py [--only WORD] [--budget 600] [--few] [--out FILE] [--quick] [--limit-s SECONDS]

Each model is tuned; then the model as it is, under torch.compile, and with the recipe file are
measured in one case from another seed. Aims: the recipe is never slower than the better of the two
beyond its interval, and its gain lies within the interval that the tuning gave in 9 of 10. Without
a recipe the model as it is stands for it. `--few` tries three techniques, for lack of time. `--out`
gets a line for each model that is done.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from aa_report import table
from tune_zoo import measured

from torchstone.lab.recording import Recorder
from torchstone.lab.request import BenchRequest, make_arms
from torchstone.lab.tune import TuneRequest, recipe_arm, tune

MODELS = (
    "hf:BertForMaskedLM@small",
    "hf:XLNetLMHeadModel@small",
    "hf:DistilBertForMaskedLM@small",
    "hf:T5Small@small",
    "hf:AlbertForMaskedLM@small",
    "timm:resnet18@small",
    "timm:mobilenetv3_large_100@small",
    "timm:vit_small_patch16_224@small",
    "timm:convnext_small@small",
    "timm:deit_base_distilled_patch16_224@small",
)
FEW = ("compile", "channels_last", "inference_mode")
WITHIN = 0.05
"""Added to either end of the first interval: the two were measured at other times."""


@dataclass(frozen=True)
class Row:
    """One model: speed-ups over the model as it is."""

    model: str
    adopted: tuple[str, ...] = ()
    told: float | None = None
    """As the tuning confirmed it."""
    compiled: float | None = None
    recipe: float | None = None
    not_worse: bool | None = None
    reproduced: bool | None = None
    elapsed_s: float = 0.0
    said: str = ""


def run(model: str, db: str, budget_s: float, bench_s: float, only: tuple[str, ...]) -> Row:
    recorder = Recorder(db)
    with tempfile.TemporaryDirectory(prefix="real-") as folder:
        path = str(Path(folder) / "recipe.py")
        asked = BenchRequest((model,))
        found = tune(TuneRequest(asked, budget_s=budget_s, recipe=path, only=only), recorder)
        if found.state == "interrupted":
            raise KeyboardInterrupt  # half a tuning says nothing
        confirmed = found.confirmation
        row = Row(model, found.adopted, confirmed.speedup if confirmed else None)
        row = replace(row, elapsed_s=found.elapsed_s)
        base = replace(make_arms(replace(asked, allocator="default"))[0], name="eager")
        arms = [base, replace(base, name="compile", variant="inductor")]
        if found.adopted:
            arms.append(recipe_arm(base, path))
        result = measured(arms, recorder, bench_s)
        seen = {one.new: one for one in result.comparisons}
        compiled = seen["compile"].speedup
        recipe = seen["recipe"].speedup if "recipe" in seen else 1.0
        if recipe is None:
            failed = result.arms[-1]
            return replace(row, compiled=compiled, said=f"{failed.outcome.value}")
        best = max(1.0, compiled or 0.0)
        ends = seen["recipe"].interval if "recipe" in seen else None
        highest = 1 / ends[0] if ends else recipe
        within = None
        if confirmed is not None and confirmed.interval is not None:
            low, high = 1 / confirmed.interval[1], 1 / confirmed.interval[0]
            within = low * (1 - WITHIN) <= recipe <= high * (1 + WITHIN)
        return replace(
            row,
            compiled=compiled,
            recipe=recipe,
            not_worse=highest >= best * (1 - 0.02),
            reproduced=within,
        )


def report(rows: list[Row]) -> str:
    head = ("model", "adopted", "told", "compile", "recipe", "not worse", "reproduced", "s")
    lines = [
        (
            row.model,
            ", ".join(row.adopted) or row.said or "nothing",
            *(f"{v:.2f}" if v else "–" for v in (row.told, row.compiled, row.recipe)),
            *("–" if v is None else "yes" if v else "NO" for v in (row.not_worse, row.reproduced)),
            f"{row.elapsed_s:.0f}",
        )
        for row in rows
    ]
    told = [row for row in rows if row.reproduced is not None]
    return "\n".join(
        [
            table(head, lines, markdown=False),
            "",
            f"not worse than the better of both: {sum(bool(r.not_worse) for r in rows)} of "
            f"{len(rows)}",
            f"recipe reproduced: {sum(bool(r.reproduced) for r in told)} of {len(told)}",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="models whose name has this word")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds for each tuning")
    parser.add_argument("--out", type=Path, help="a line for each model that is done")
    parser.add_argument("--few", action="store_true", help=f"{', '.join(FEW)} alone")
    parser.add_argument("--quick", action="store_true", help="one model, one technique")
    parser.add_argument(
        "--limit-s", type=float, default=math.inf, help="start no new model after so many seconds"
    )
    asked = parser.parse_args()
    began, done = time.monotonic(), dict[str, Row]()
    if asked.out and asked.out.exists():
        for line in asked.out.read_text().splitlines():
            row = Row(**json.loads(line))
            done[row.model] = replace(row, adopted=tuple(row.adopted))
    models = [name for name in MODELS if asked.only in name][: 1 if asked.quick else None]
    with tempfile.TemporaryDirectory(prefix="real-db-") as folder:
        for model in models:
            if model in done:
                continue
            if time.monotonic() - began > asked.limit_s:
                break
            budget = 20.0 if asked.quick else asked.budget
            bench = min(30.0, budget / 10)
            only = ("inference_mode",) if asked.quick else FEW if asked.few else ()
            done[model] = run(model, str(Path(folder) / "real.db"), budget, bench, only)
            print(f"{model}: {', '.join(done[model].adopted) or 'nothing'}", file=sys.stderr)
            if asked.out:
                with asked.out.open("a") as file:
                    file.write(json.dumps(asdict(done[model])) + "\n")
    rows = list(done.values())
    print(report(rows))
    told = [row.reproduced for row in rows if row.reproduced is not None]
    enough = sum(map(bool, told)) >= 0.9 * len(told)
    return 0 if enough and all(row.not_worse for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""`torchstone tune`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.records import Tuning


@click.command()
@click.argument("target", required=False)
@opt.arm_options
@opt.interpreter_options
@opt.option(
    "--allocator",
    default="default",
    metavar="default|keep|jemalloc|tcmalloc",
    help="Memory allocator of the baseline; default: the system's own, as your program has it.",
)
@opt.option(
    "--goal",
    default="speed",
    metavar="speed|memory|latency|throughput",
    help="What is to become better.",
)
@opt.option(
    "--allow",
    default="tolerance",
    metavar="bitwise|tolerance|statistical|metric",
    help="How far answers may move: not by a bit; by rounding; to other values that are as good; "
    "as far as your metric says.",
)
@opt.option("--budget", type=opt.DURATION, default="10m", help="Wall time of all experiments.")
@opt.option(
    "--metric", default="", metavar="FILE.py:FN", help="Judges answers: FN(model) gives a number."
)
@opt.option("--only", multiple=True, metavar="TECHNIQUE", help="Try only these; repeatable.")
@opt.option("--without", multiple=True, metavar="TECHNIQUE", help="Leave these out; repeatable.")
@opt.option("--resume", default="", metavar="ID", help="Resume an interrupted tuning.")
@opt.option("--recipe", default="", metavar="FILE.py", help="Where the recipe goes (recipe_ID.py).")
@opt.margin_option
@opt.option("--seed", type=int, default=0)
@opt.option("--timeout", type=opt.DURATION, default="60s", help="For a step.")
@opt.option(
    "--build-timeout", type=opt.DURATION, default="600s", help="For building and compiling."
)
@opt.database_option
@opt.output_options
@opt.save_option("Keep the tuning, and the result of every experiment.")
def tune(target: str | None, output: opt.Output, save: bool, db: str | None, **asked: Any) -> int:
    """Find what makes a target faster, and prove it.

    Every technique that applies is measured against TARGET as it is, in processes of its own; its
    answers are checked, also with the inputs with which it is known to fail. Those that gain are
    combined one by one. What is adopted is written to a recipe file, and confirmed from it.

    \b
    Examples:
      torchstone tune model.py:make
      torchstone tune model.py:make --mode training --budget 20m
      torchstone tune timm:resnet18@small --goal memory
      torchstone tune model.py:make --only compile --only channels_last
      torchstone tune --resume 1jz3k
      torchstone list techniques
    """
    from torchstone.lab.recording import Recorder
    from torchstone.lab.tune import tune as run
    from torchstone.records import UsageError

    resume = asked["resume"]
    if bool(target) == bool(resume):
        raise UsageError(
            "Name a target, or a tuning to resume." if not target else "--resume has its target.",
            "Write `torchstone tune path.py:make`, or `torchstone tune --resume ID`.",
        )
    if resume and not save:
        raise UsageError("--resume adds to what is stored.", "Remove --no-save.")
    request = make_request(target or "", asked)
    recorder = Recorder(db, saves=save)
    with _progress() as events:
        found = run(request, recorder, events)
    deliver_tuning(output, found, db)
    code = opt.Exit.INTERRUPTED if found.state == "interrupted" else opt.Exit.OK
    return opt.print_storage_warnings(recorder, code)


def make_request(target: str, asked: dict[str, Any]) -> Any:
    """What was asked, as a record."""
    from torchstone.conductor import Settings
    from torchstone.lab.request import BenchRequest
    from torchstone.lab.tune import TuneRequest

    settings = Settings(
        margin=asked.pop("margin"),
        seed=asked.pop("seed"),
        step_timeout_s=asked.pop("timeout"),
        build_timeout_s=asked.pop("build_timeout"),
    )
    names = ("goal", "allow", "metric", "only", "without", "resume", "recipe")
    own = {name: asked.pop(name) for name in names}
    budget = asked.pop("budget")
    bench = BenchRequest(targets=(target,) if target else (), settings=settings, **asked)
    return TuneRequest(bench=bench, budget_s=budget, **own)


def deliver_tuning(output: opt.Output, found: Tuning, db: str | None) -> None:
    """To the terminal, as Markdown or as JSON."""
    from torchstone.show import tune as shown

    output.deliver_report(
        partial(shown.tune_report, found, db=opt.named_database(db)),
        partial(shown.tune_dumps, found),
        markdown=partial(shown.tune_report, found),
    )


def _progress() -> Any:
    import sys

    from torchstone.show.progress import make_tune_progress

    return make_tune_progress(sys.stderr)

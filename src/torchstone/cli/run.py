"""`torchstone run`."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.lab.run import RunEnd
    from torchstone.lab.run_plan import RunRequest
    from torchstone.records import RunView


BUDGET_S = 20.0
REPLICATES, FAST_REPLICATES = 4, 3
UNFINISHED = ("total budget", "nodes")
"""Why a run may end before its plan does."""


def deliver_run(output: opt.Output, view: RunView, commands: bool, db: str | None) -> None:
    """The report, Markdown, CSV or JSON of a run. `db`: the database it is in, as it was named."""
    from torchstone.show.run import run_report
    from torchstone.show.run_data import run_csv, run_dumps
    from torchstone.stats import summarise, verdicts
    from torchstone.store import BriefRunView

    told = verdicts(view.complete)
    if isinstance(view, BriefRunView):
        summaries = list(view.summaries)
    else:
        summaries = summarise(view.complete, told=told)
    report = partial(run_report, view, summaries, told=told)
    output.deliver_report(
        partial(report, commands=commands, db=opt.named_database(db)),
        partial(run_dumps, view, summaries),
        partial(run_csv, view),
        report,
    )


@click.command()
@click.argument("suites", nargs=-1, metavar="[SUITE]...")
@opt.option(
    "--variants",
    type=opt.WORDS,
    default="inductor",
    help="Each is compared with eager: inductor, inductor+dynamic, inductor+cudagraphs, "
    "inductor+max-autotune, inductor+freezing, aot_eager, jit-trace, export, aoti, any backend.",
)
@opt.option("--modes", type=opt.WORDS, help="inference,training (default: inference).")
@opt.option("--precisions", type=opt.WORDS, default="fp32", help="fp32,bf16,fp16,amp,...")
@opt.option("--only", multiple=True, metavar="NAME", help="Only this model (repeatable; * ?).")
@opt.option("--exclude", multiple=True, metavar="NAME", help="Not this model (repeatable; * ?).")
@opt.option("-k", "pattern", default="", metavar="PATTERN", help="Only models that match.")
@opt.option(
    "--tier",
    type=click.Choice(("quick", "standard", "full")),
    help="How many models (default: quick without a suite, else standard).",
)
@opt.option(
    "--scale",
    type=click.Choice(("small", "full")),
    default="small",
    help="Small: the same blocks, fewer and narrower.",
)
@opt.option("--shard", metavar="I/N", help="Only the I-th of N parts; parts of a --label join.")
@opt.option("--engine", default="local", help="Where cases are measured: local, ray.")
@opt.option("--address", default="", help="Of the Ray cluster (default: RAY_ADDRESS, else here).")
@opt.option("--resume", metavar="RUN", help="Resume an interrupted run.")
@opt.option(
    "--fast",
    is_flag=True,
    help="A quick look: 3 processes an arm, 5s a case, margin 5%, fewer checks.",
)
@opt.option(
    "--budget-per-case",
    "budget",
    type=opt.DURATION,
    help="Measuring time (default: 20s). Building, checking and compiling come on top.",
)
@opt.option("--total-budget", type=opt.DURATION, help="Stop starting new cases after this long.")
@opt.option("--replicates", type=int, help="Processes per arm (default: 4).")
@opt.device_option
@opt.option("--threads", type=int, help="Threads (default: 1 on two cores or fewer).")
@opt.allocator_option
@opt.settings_options
@opt.option(
    "--torchbench",
    default="",
    metavar="PATH",
    help="A checkout of pytorch/benchmark, whose models the suite torchbench then is "
    "(or TORCHSTONE_TORCHBENCH).",
)
@opt.option("--label", default="", help="A name to find the run by, such as the commit.")
@opt.option("--commands", is_flag=True, help="Show the command that re-runs each case.")
@opt.option("-v", "--verbose", is_flag=True, help="Say where each case's wall time went.")
@opt.database_option
@opt.output_options
@opt.strict_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    suites: tuple[str, ...],
    shard: str | None,
    engine: str,
    address: str,
    resume: str | None,
    total_budget: float | None,
    torchbench: str,
    db: str | None,
    output: opt.Output,
    commands: bool,
    verbose: bool,
    strict: bool,
    **asked: Any,
) -> int:
    """Run suites of models: eager against compiled, stored case by case.

    SUITE is huggingface, timm, torchvision, torchbench, or a file (suite.toml, suite.py) that
    lists targets. Without one: the quick tier, six models of three suites.

    \b
    Examples:
      torchstone run
      torchstone run timm --variants inductor,aot_eager --modes inference,training
      torchstone run huggingface --only BertForMaskedLM --precisions fp32,amp
      torchstone run my_suite.toml --label $(git rev-parse --short HEAD)
      torchstone run timm --tier full --shard 3/12 --label nightly-0412
      torchstone run timm --engine ray --address 10.0.0.1:6379 --db postgresql+psycopg://ci@db/perf
      torchstone run --resume last
    """
    from torchstone.lab.engines import open_engine
    from torchstone.lab.run import resume_run, start_run
    from torchstone.lab.run_plan import parse_shard
    from torchstone.show.progress import make_run_progress

    part = parse_shard(shard) if shard is not None else None
    if resume is not None:
        _refuse_planning(ctx, suites, asked)
    with (
        open_engine(engine, address) as where,
        make_run_progress(sys.stderr, verbose=verbose) as events,
    ):
        if resume is not None:
            end = resume_run(resume, db, events, part, total_budget, torchbench, where)
        else:
            command = ("torchstone", *sys.argv[1:])
            request = _request(suites, torchbench, asked)
            end = start_run(request, command, db, events, part, total_budget, where)
    try:
        deliver_run(output, end.view, commands, db)
    finally:
        code = opt.print_storage_warnings(end, _exit_code(end, strict))
    return code


def _request(suites: tuple[str, ...], torchbench: str, asked: dict[str, Any]) -> RunRequest:
    from torchstone.lab.run_plan import RunRequest

    fast = asked["fast"]
    asked["budget"] = asked["budget"] or (None if fast else BUDGET_S)
    asked["replicates"] = asked["replicates"] or (FAST_REPLICATES if fast else REPLICATES)
    settings = opt.take_settings(asked)
    asked["modes"] = asked["modes"] or ()
    asked["tier"] = asked["tier"] or ""
    return RunRequest(suites=suites, torchbench=torchbench, settings=settings, **asked)


def _refuse_planning(ctx: click.Context, suites: tuple[str, ...], asked: dict[str, Any]) -> None:
    """A resumed run keeps its plan; an option that would change it is a misunderstanding."""
    from torchstone.records import UsageError

    planning = [param for param in ctx.command.params if param.name in asked]
    given = [param.opts[0] for param in planning if opt.is_given(ctx, str(param.name))]
    if changed := [*given, *suites]:
        raise UsageError(
            f"{changed[0]} cannot be changed by --resume: the stored run has its plan.",
            "Leave it out, or begin a new run.",
        )


def _exit_code(end: RunEnd, strict: bool) -> int:
    """Failed: a case that was to run failed or was not run; when strict, also where a check
    fails."""
    from torchstone.records import Level

    if end.stopped_by == "interrupt":
        return opt.Exit.INTERRUPTED
    failed = any(case.outcome.failed for case in end.view.cases)
    failed |= strict and any(case.worst_check is Level.FAIL for case in end.view.cases)
    return opt.Exit.FAILED if failed or end.stopped_by in UNFINISHED else opt.Exit.OK

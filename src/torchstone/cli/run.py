"""`torchstone run`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.options import (
    INTERRUPTED,
    Duration,
    allocator_option,
    check_json_path,
    database_option,
    named_database,
    output_options,
    settings_options,
    strict_option,
    take_settings,
    together_option,
    use_color,
    width,
)

if TYPE_CHECKING:
    from torchstone.lab.run import RunEnd
    from torchstone.records import RunView


# A run, printed in the form that was asked for.


def deliver_run(
    view: RunView,
    json_path: str | None,
    *,
    markdown: bool = False,
    csv: bool = False,
    commands: bool = False,
    db: str | None = None,
) -> None:
    """The report, Markdown, CSV or JSON of a run. `db`: the database it is in, as it was named."""
    from torchstone import show, stats
    from torchstone.lab.output_files import write_file

    summaries = stats.summarise(view.complete)
    if json_path == "-":
        click.echo(show.run_dumps(view, summaries))
        return
    if json_path is not None:
        write_file(json_path, show.run_dumps(view, summaries) + "\n")
    if csv:
        click.echo(show.run_csv(view), nl=False)
    elif markdown:
        click.echo(show.run_markdown(view, summaries), nl=False)
    else:
        text = show.run_report(
            view,
            summaries,
            color=use_color(),
            width=width(),
            unicode=show.can_unicode(sys.stdout),
            commands=commands,
            db=named_database(db),
        )
        click.echo(text, nl=False, color=True)


_PLANNING = (
    "variants",
    "modes",
    "precisions",
    "only",
    "exclude",
    "pattern",
    "tier",
    "scale",
    "device",
    "threads",
    "allocator",
    "label",
    "budget",
    "replicates",
    "together",
    "margin",
    "seed",
    "timeout",
    "build_timeout",
)


class Words(click.ParamType):  # type: ignore[type-arg]
    """`inductor,aot_eager`."""

    name = "a,b,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The words, in order, each once."""
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        if not all(words):
            self.fail(f"{value!r} has an empty part; write a,b,c", param, ctx)
        return tuple(dict.fromkeys(words))


@click.command()
@click.argument("suites", nargs=-1, metavar="[SUITE]...")
@click.option(
    "--variants",
    type=Words(),
    default="inductor",
    show_default=True,
    help="Each is compared with eager: inductor, inductor+dynamic, inductor+cudagraphs, "
    "inductor+max-autotune, inductor+freezing, aot_eager, jit-trace, export, aoti, any backend.",
)
@click.option("--modes", type=Words(), help="inference,training (default: inference).")
@click.option(
    "--precisions", type=Words(), default="fp32", show_default=True, help="fp32,bf16,fp16,amp,..."
)
@click.option("--only", multiple=True, metavar="NAME", help="Only this model (repeatable; * ?).")
@click.option("--exclude", multiple=True, metavar="NAME", help="Not this model (repeatable; * ?).")
@click.option("-k", "pattern", default="", metavar="PATTERN", help="Only models that match.")
@click.option(
    "--tier",
    type=click.Choice(("quick", "standard", "full")),
    help="How many models (default: quick without a suite, else standard).",
)
@click.option(
    "--scale",
    type=click.Choice(("small", "full")),
    default="small",
    show_default=True,
    help="Small: the same blocks, fewer and narrower.",
)
@click.option("--shard", metavar="I/N", help="Only the I-th of N parts; parts of a --label join.")
@click.option("--resume", metavar="RUN", help="Resume an interrupted run.")
@click.option(
    "--budget-per-case",
    "budget",
    type=Duration(),
    default="20s",
    show_default=True,
    help="Measurement time; starting processes, compiling and checks come on top.",
)
@click.option("--total-budget", type=Duration(), help="Stop starting new cases after this long.")
@click.option("--replicates", type=int, default=4, show_default=True, help="Processes per arm.")
@together_option(default=False)
@click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda|...")
@click.option("--threads", type=int, help="Threads (default: 1 on two cores or fewer).")
@allocator_option
@settings_options
@click.option(
    "--torchbench",
    metavar="PATH",
    help="A checkout of pytorch/benchmark, whose models the suite torchbench then is "
    "(or TORCHSTONE_TORCHBENCH).",
)
@click.option("--label", default="", help="A name to find the run by, such as the commit.")
@click.option("--commands", is_flag=True, help="Show the command that re-runs each case.")
@click.option("-v", "--verbose", is_flag=True, help="Say where each case's wall time went.")
@database_option
@output_options
@strict_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    suites: tuple[str, ...],
    shard: str | None,
    resume: str | None,
    total_budget: float | None,
    torchbench: str | None,
    db: str | None,
    json_path: str | None,
    markdown: bool,
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
      torchstone run --resume last
    """
    from torchstone.lab.run import resume_run, start_run
    from torchstone.lab.run_plan import TORCHBENCH_VARIABLE, parse_shard
    from torchstone.show import make_run_progress

    check_json_path(json_path)
    if torchbench is not None:
        os.environ[TORCHBENCH_VARIABLE] = _checkout(torchbench)
        asked["torchbench"] = torchbench
    part = parse_shard(shard) if shard is not None else None
    if resume is not None:
        _refuse_planning(ctx, suites)
    with make_run_progress(sys.stderr, verbose=verbose) as events:
        if resume is not None:
            end = resume_run(resume, db, events, part, total_budget)
        else:
            command = ("torchstone", *sys.argv[1:])
            end = start_run(_request(suites, asked), command, db, events, part, total_budget)
    deliver_run(end.view, json_path, markdown=markdown, commands=commands, db=db)
    return _exit_code(end, strict)


def _request(suites: tuple[str, ...], asked: dict[str, Any]) -> Any:
    from torchstone.lab.run_plan import RunRequest

    settings = take_settings(asked)
    asked["modes"] = asked["modes"] or ()
    asked["tier"] = asked["tier"] or ""
    return RunRequest(suites=suites, settings=settings, **asked)


def _checkout(path: str) -> str:
    from torchstone.records import UsageError

    if not os.path.isdir(os.path.join(path, "torchbenchmark", "models")):
        raise UsageError(
            f"{path} is not a checkout of pytorch/benchmark.",
            "Name the folder that has torchbenchmark/models in it.",
        )
    return os.path.abspath(path)


def _refuse_planning(ctx: click.Context, suites: tuple[str, ...]) -> None:
    """A resumed run keeps its plan; an option that would change it is a misunderstanding."""
    from torchstone.records import UsageError

    given = [
        param.opts[0]
        for param in ctx.command.params
        if param.name in _PLANNING
        and ctx.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if suites or given:
        what = given[0] if given else suites[0]
        raise UsageError(
            f"{what} cannot be changed by --resume: the stored run has its plan.",
            "Leave it out, or begin a new run.",
        )


def _exit_code(end: RunEnd, strict: bool) -> int:
    """0: every case that was to run passed. 1: one failed or was not run; when strict, also where
    a check fails. 130: interrupted."""
    from torchstone.records import Level

    if end.stopped_by == "interrupt":
        return INTERRUPTED
    failed = any(case.outcome.failed for case in end.view.cases)
    failed |= strict and any(case.worst_check is Level.FAIL for case in end.view.cases)
    return int(failed or end.stopped_by == "total budget")

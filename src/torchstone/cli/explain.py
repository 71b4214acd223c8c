"""`torchstone explain` and `torchstone tune`: where the time goes, and what makes it less."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.explain import Roofline
    from torchstone.lab.recording import Recorder
    from torchstone.records import Difference, Ledger, Result, Tuning


_MEASURING = ("mode", "precision", "device", "threads", "python", "env", "allocator", "budget")
_OF_LEDGERS = ("variant", "vs", "verify")


@click.command()
@click.argument("what", metavar="TARGET|ID")
@opt.option("--variant", default="eager", help="How the target is run.")
@opt.option("--vs", default="", metavar="VARIANT", help="Also under this variant: what changes.")
@opt.option(
    "--verify", is_flag=True, help="Apply each remedy, measure it in turns, and say if it held."
)
@opt.option(
    "--roofline",
    is_flag=True,
    help="What a step and its heaviest ops reach of this machine's calibrated peaks.",
)
@opt.option(
    "--out", metavar="FILE.svg", help="With --roofline: write the picture as a stand-alone SVG."
)
@opt.option(
    "--arm", default="", metavar="NAME", help="Of a stored result: this arm (else the first)."
)
@opt.arm_options
@opt.process_options
@opt.option(
    "--budget",
    type=opt.DURATION,
    default="5s",
    help="Time to look at steps, and for each test of --verify.",
)
@opt.database_option
@opt.output_options
@opt.save_option("Keep what is measured.")
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    what: str,
    roofline: bool,
    out: str | None,
    arm: str,
    output: opt.Output,
    save: bool,
    db: str | None,
    **asked: Any,
) -> int:
    """Break down where a step's time goes and suggest fixes.

    TARGET is looked at in a process of its own: its steps plain and traced in turns, divided into
    Python, PyTorch's front end and back end, and time off the CPU. With --roofline it is measured
    as `torchstone bench` does it, and held against the peaks of `torchstone doctor --calibrate`.
    ID is a stored result (`last`: the newest); of it there is only the roofline.

    \b
    Examples:
      torchstone explain model.py:make
      torchstone explain model.py:make --mode training --verify
      torchstone explain model.py:make --vs inductor
      torchstone explain model.py:make --variant inductor --vs inductor+max-autotune
      torchstone explain timm:resnet18@small --roofline --out roofline.svg
      torchstone explain 1jz3k --arm inductor --json -
    """
    from torchstone.lab.explain import is_target, roofline_of_stored, was_interrupted
    from torchstone.lab.recording import Recorder

    _check_out(out)
    if not is_target(what):
        for name in (*_MEASURING, *_OF_LEDGERS, "markdown", "save"):
            _refuse(opt.is_given(ctx, name), f"--{name}", "a target, which is measured")
        _deliver_roofline(output, roofline_of_stored(what, arm, db), out)
        return opt.Exit.OK
    _refuse(bool(arm), "--arm", "a stored result")
    recorder = Recorder(db, saves=save)
    if roofline:
        for name in (*_OF_LEDGERS, "markdown"):
            _refuse(opt.is_given(ctx, name), f"--{name}", "the ledger, not for --roofline")
            asked.pop(name, None)
        result, measured = _measured(what, recorder, asked)
        _deliver_roofline(output, measured, out)
        return opt.print_storage_warnings(recorder, opt.exit_code(result))
    _refuse(out is not None, "--out", "--roofline")
    found = _ledger(what, recorder, asked)
    deliver_ledger(output, found)
    if recorder.ids_kept and not (output.alone or output.markdown):
        kept = " and ".join(recorder.ids_kept)
        again = f"`torchstone show {recorder.ids_kept[-1]}` shows it again."
        click.echo(f"\nKept as {kept}; {again}")
    code = opt.Exit.INTERRUPTED if was_interrupted(found) else opt.Exit.OK
    return opt.print_storage_warnings(recorder, code)


def _ledger(target: str, recorder: Recorder, asked: dict[str, Any]) -> Ledger | Difference:
    from torchstone.lab.explain import ExplainRequest, explain_difference, explain_target
    from torchstone.lab.request import BenchRequest

    vs, verify, budget = asked.pop("vs"), asked.pop("verify"), asked.pop("budget")
    variant = asked.pop("variant")
    request = ExplainRequest(
        bench=BenchRequest(targets=(target,), **asked),
        vs=vs,
        budget_s=budget,
        verify=verify,
        verify_budget_s=budget,
        variant=variant,
    )
    with opt.progress() as events:
        if vs:
            return explain_difference(request, recorder, events)
        return explain_target(request, recorder, events)


def _measured(target: str, recorder: Recorder, asked: dict[str, Any]) -> tuple[Result, Roofline]:
    from torchstone.conductor import Settings
    from torchstone.lab.explain import roofline_of_target
    from torchstone.lab.request import BenchRequest

    settings = Settings(budget_s=asked.pop("budget"))
    request = BenchRequest(targets=(target,), settings=settings, **asked)
    with opt.progress() as events:
        return roofline_of_target(request, recorder, events)


def deliver_ledger(output: opt.Output, found: Ledger | Difference) -> None:
    """To the terminal, as Markdown or as JSON."""
    from torchstone.records import Ledger
    from torchstone.show import ledger as shown

    if isinstance(found, Ledger):
        report, written = partial(shown.ledger_report, found), partial(shown.ledger_markdown, found)
    else:
        report = partial(shown.difference_report, found)
        written = partial(shown.difference_markdown, found)
    output.deliver(report, partial(shown.ledger_dumps, found), written)


def _deliver_roofline(output: opt.Output, found: Roofline, out: str | None) -> None:
    from torchstone.lab.output_files import write_file
    from torchstone.show.roofline import roofline_dumps, roofline_report, roofline_svg
    from torchstone.show.table import sanitise

    if out is not None:
        write_file(out, roofline_svg(found))
    output.deliver(partial(roofline_report, found), partial(roofline_dumps, found))
    if out is not None and not output.alone:
        click.echo(f"\nThe picture is in {sanitise(out)}.")


def _refuse(given: bool, option: str, what: str) -> None:
    from torchstone.records import UsageError

    if given:
        raise UsageError(f"{option} is for {what}.", "Remove this option.")


def _check_out(path: str | None) -> None:
    """Find out before measuring whether the picture can be written."""
    from torchstone.records import UsageError

    if path is not None and not path.lower().endswith(".svg"):
        raise UsageError(f"{path} does not end in .svg.", "The picture is an SVG file.")
    opt.check_path(path)


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
@opt.option("--budget", type=opt.DURATION, default="10m", help="Wall time of everything.")
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

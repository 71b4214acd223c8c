"""`torchstone explain`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.explain import Roofline
    from torchstone.lab.recording import Recorder
    from torchstone.records import Difference, Ledger, Result

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

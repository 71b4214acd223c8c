"""`torchstone explain`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.options import (
    INTERRUPTED,
    Duration,
    arm_options,
    check_json_path,
    database_option,
    exit_code,
    json_option,
    print_storage_warnings,
    process_options,
    progress,
    use_color,
    width,
)

if TYPE_CHECKING:
    from torchstone.explain import Roofline
    from torchstone.lab.recording import Recorder
    from torchstone.records import Difference, Ledger, Result

_MEASURING = ("mode", "precision", "device", "threads", "python", "env", "allocator", "budget")
_OF_LEDGERS = ("variant", "vs", "verify", "markdown")


@click.command()
@click.argument("what", metavar="TARGET|ID")
@click.option("--variant", default="eager", show_default=True, help="How the target is run.")
@click.option("--vs", default="", metavar="VARIANT", help="Also under this variant: what changes.")
@click.option(
    "--verify", is_flag=True, help="Apply each remedy, measure it in turns, and say if it held."
)
@click.option(
    "--roofline",
    is_flag=True,
    help="What a step and its heaviest ops reach of this machine's calibrated peaks.",
)
@click.option(
    "--out", metavar="FILE.svg", help="With --roofline: write the picture as a stand-alone SVG."
)
@click.option(
    "--arm", default="", metavar="NAME", help="Of a stored result: this arm (else the first)."
)
@arm_options
@process_options
@click.option(
    "--budget",
    type=Duration(),
    default="5s",
    show_default=True,
    help="Time to look at steps, and for each test of --verify.",
)
@database_option
@json_option
@click.option("--markdown", is_flag=True, help="Print Markdown instead.")
@click.option("--save/--no-save", default=True, show_default=True, help="Keep what is measured.")
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    what: str,
    roofline: bool,
    out: str | None,
    arm: str,
    json_path: str | None,
    save: bool,
    db: str | None,
    **asked: Any,
) -> int:
    """Say where the time of a step goes, and what would make it shorter.

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
    from torchstone.lab.explain import is_target, roofline_of_stored
    from torchstone.lab.recording import Recorder

    check_json_path(json_path)
    _check_out(out)
    if not is_target(what):
        for name in (*_MEASURING, *_OF_LEDGERS, "save"):
            _refuse(_given(ctx, name), f"--{name}", "a target, which is measured")
        _deliver(roofline_of_stored(what, arm, db), out, json_path)
        return 0
    _refuse(bool(arm), "--arm", "a stored result")
    if roofline:
        for name in _OF_LEDGERS:
            _refuse(_given(ctx, name), f"--{name}", "the ledger, not for --roofline")
            asked.pop(name)
        recorder = Recorder(db, saves=save)
        result, found = _measured(what, recorder, asked)
        _deliver(found, out, json_path)
        return print_storage_warnings(recorder, exit_code(result))
    _refuse(out is not None, "--out", "--roofline")
    return _explain(what, db, save, asked, json_path, asked.pop("markdown"))


def _explain(
    target: str,
    db: str | None,
    save: bool,
    asked: dict[str, Any],
    json_path: str | None,
    markdown: bool,
) -> int:
    from torchstone.lab.explain import was_interrupted
    from torchstone.lab.recording import Recorder

    recorder = Recorder(db, saves=save)
    found = _ledger(target, recorder, asked)
    deliver_ledger(found, json_path, markdown)
    if recorder.ids_kept and json_path != "-" and not markdown:
        click.echo(f"\n{_kept(recorder.ids_kept)}")
    return print_storage_warnings(recorder, INTERRUPTED if was_interrupted(found) else 0)


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _ledger(target: str, recorder: Recorder | None, asked: dict[str, Any]) -> Ledger | Difference:
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
    with progress() as events:
        if vs:
            return explain_difference(request, recorder, events)
        return explain_target(request, recorder, events)


def _kept(ids: Sequence[str]) -> str:
    return f"Kept as {' and '.join(ids)}; `torchstone show {ids[-1]}` shows it again."


def deliver_ledger(found: Ledger | Difference, json_path: str | None, markdown: bool) -> None:
    """To the terminal, as Markdown or as JSON."""
    from torchstone import show
    from torchstone.lab.output_files import write_file
    from torchstone.records import Ledger

    if json_path == "-":
        click.echo(show.ledger_dumps(found))
        return
    if json_path is not None:
        write_file(json_path, show.ledger_dumps(found) + "\n")
    unicode, color = show.can_unicode(sys.stdout), use_color()
    if isinstance(found, Ledger):
        text = (
            show.ledger_markdown(found)
            if markdown
            else show.ledger_report(found, color=color, width=width(), unicode=unicode)
        )
    elif markdown:
        text = show.difference_markdown(found)
    else:
        text = show.difference_report(found, color=color, width=width(), unicode=unicode)
    click.echo(text, nl=False, color=True)


def _measured(target: str, recorder: Recorder, asked: dict[str, Any]) -> tuple[Result, Roofline]:
    from torchstone.conductor import Settings
    from torchstone.lab.explain import roofline_of_target
    from torchstone.lab.request import BenchRequest

    settings = Settings(budget_s=asked.pop("budget"))
    request = BenchRequest(targets=(target,), settings=settings, **asked)
    with progress() as events:
        return roofline_of_target(request, recorder, events)


def _refuse(given: bool, option: str, what: str) -> None:
    from torchstone.records import UsageError

    if given:
        raise UsageError(f"{option} is for {what}.", "Remove this option.")


def _check_out(path: str | None) -> None:
    """Find out before measuring whether the picture can be written."""
    from torchstone.lab.output_files import writable
    from torchstone.records import UsageError

    if path is None:
        return
    if not path.lower().endswith(".svg"):
        raise UsageError(f"{path} does not end in .svg.", "The picture is an SVG file.")
    if not writable(path):
        raise UsageError(f"{path} cannot be written.", "Name another file, or make its folder.")


def _deliver(found: Roofline, out: str | None, json_path: str | None) -> None:
    from torchstone import show
    from torchstone.lab.output_files import write_file

    if out is not None:
        write_file(out, show.roofline_svg(found))
    if json_path == "-":
        click.echo(show.roofline_dumps(found))
        return
    if json_path is not None:
        write_file(json_path, show.roofline_dumps(found) + "\n")
    unicode = show.can_unicode(sys.stdout)
    text = show.roofline_report(found, color=use_color(), width=width(), unicode=unicode)
    click.echo(text, nl=False, color=True)
    if out is not None:
        click.echo(f"\nThe picture is in {show.sanitise(out)}.")

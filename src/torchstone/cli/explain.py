"""`torchstone explain`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.options import (
    Assignment,
    Duration,
    check_json_path,
    database_option,
    progress,
    use_color,
    width,
)

if TYPE_CHECKING:
    from torchstone.explain import Roofline

_MEASURING = ("mode", "precision", "device", "threads", "python", "env", "allocator", "budget")


@click.command()
@click.argument("what", metavar="TARGET|ID")
@click.option(
    "--roofline",
    is_flag=True,
    expose_value=False,
    help="What a step and its heaviest ops reach of this machine's calibrated roofs (the default).",
)
@click.option("--out", metavar="FILE.svg", help="Write the picture as a stand-alone SVG.")
@click.option(
    "--arm", default="", metavar="NAME", help="Of a stored result: this arm (else the first)."
)
@click.option("--mode", default="inference", show_default=True, metavar="inference|training")
@click.option(
    "--precision",
    default="fp32",
    show_default=True,
    metavar="fp32|tf32|bf16|fp16|amp|amp-bf16|amp-fp16",
)
@click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda|...")
@click.option("--threads", type=int, help="Threads of torch and OpenMP (default: theirs).")
@click.option("--python", metavar="PYTHON", help="Interpreter, e.g. python3.13.")
@click.option("--env", multiple=True, type=Assignment(), help="Environment variable.")
@click.option(
    "--allocator",
    default="default",
    show_default=True,
    metavar="default|keep|jemalloc|tcmalloc",
    help="Memory allocator.",
)
@click.option(
    "--budget",
    type=Duration(),
    default="5s",
    show_default=True,
    help="Time for turns, once the first processes are steady.",
)
@database_option
@click.option(
    "--json", "json_path", metavar="PATH|-", help="Write JSON to a file; - prints it alone."
)
@click.option("--save/--no-save", default=True, show_default=True, help="Keep what is measured.")
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    what: str,
    out: str | None,
    arm: str,
    json_path: str | None,
    save: bool,
    db: str | None,
    **asked: Any,
) -> int:
    """Say what limits a workload: compute, memory, or neither.

    TARGET is measured first, as `torchstone bench` does it; ID is a stored result (`last`: the
    newest), and nothing is measured. The roofs come from `torchstone doctor --calibrate`. More
    levels are to come.

    \b
    Examples:
      torchstone explain model.py:make --roofline
      torchstone explain timm:resnet18@small --mode training --threads 1
      torchstone explain last --roofline --out roofline.svg
      torchstone explain 1jz3k --arm inductor --json -
    """
    from torchstone.lab.roofline import is_target, roofline_of_stored

    check_json_path(json_path)
    _check_out(out)
    if is_target(what):
        _refuse(bool(arm), "--arm", "a stored result")
        found = _measured(what, db, save, asked)
    else:
        for name in (*_MEASURING, "save"):
            given = ctx.get_parameter_source(name)
            chosen = given is click.core.ParameterSource.COMMANDLINE
            _refuse(chosen, f"--{name}", "a target, which is measured")
        found = roofline_of_stored(what, arm, db)
    _deliver(found, out, json_path)
    return 0


def _measured(target: str, db: str | None, save: bool, asked: dict[str, Any]) -> Roofline:
    from torchstone.conductor import Settings
    from torchstone.lab.request import BenchRequest
    from torchstone.lab.roofline import roofline_of_target

    settings = Settings(budget_s=asked.pop("budget"))
    request = BenchRequest(targets=(target,), settings=settings, **asked)
    with progress() as events:
        _, found = roofline_of_target(request, db, save, events)
    return found


def _refuse(given: bool, option: str, what: str) -> None:
    from torchstone.records import UsageError

    if given:
        raise UsageError(f"{option} is for {what}.", "Leave it away.")


def _check_out(path: str | None) -> None:
    """Find out before measuring whether the picture can be written."""
    from torchstone.records import UsageError

    if path is None:
        return
    if not path.lower().endswith(".svg"):
        raise UsageError(f"{path} does not end in .svg.", "The picture is an SVG file.")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder) or os.path.isdir(path) or not os.access(folder, os.W_OK):
        raise UsageError(f"{path} cannot be written.", "Name another file, or make its folder.")


def _deliver(found: Roofline, out: str | None, json_path: str | None) -> None:
    from torchstone import show

    if out is not None:
        with open(out, "w", encoding="utf-8") as file:
            file.write(show.roofline_svg(found))
    if json_path == "-":
        click.echo(show.roofline_dumps(found))
        return
    if json_path is not None:
        with open(json_path, "w", encoding="utf-8") as file:
            file.write(show.roofline_dumps(found) + "\n")
    unicode = show.can_unicode(sys.stdout)
    text = show.roofline_report(found, color=use_color(), width=width(), unicode=unicode)
    click.echo(text, nl=False, color=True)
    if out is not None:
        click.echo(f"\nThe picture is in {show.sanitise(out)}.")

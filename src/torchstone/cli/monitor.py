"""`torchstone monitor`: a script under a monitor, and the records of monitors."""

from __future__ import annotations

from functools import partial

import click

from torchstone.cli import options as opt
from torchstone.cli.profile import ProgramCommand

RUN = "run"


class MonitorGroup(click.Group):
    """Without a command of ours, what follows is a program: `torchstone monitor train.py`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `run` before it."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


@click.group(cls=MonitorGroup)
def monitor() -> None:
    """Watch a training while it runs: where its time goes, and what goes wrong.

    The script needs no edit. Its steps are those of its DataLoader, or of its optimizer. What is
    seen is written as it happens; `torchstone top` shows it live.

    \b
    Examples:
      torchstone monitor train.py --epochs 3
      torchstone monitor --sink prometheus:9400 train.py
      torchrun --nproc-per-node 2 -m torchstone monitor train.py
      torchstone monitor show last
      torchstone monitor compare my-run-6afd388e 6afd4c01
    """


@monitor.command(RUN, cls=ProgramCommand)
@click.argument("what", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
@opt.option("-m", "--module", is_flag=True, help="Run a module, as `python -m` does.")
@opt.option("--name", default="", help="What it is called (default: the script's name).")
@opt.option(
    "--sink",
    "sinks",
    multiple=True,
    metavar="NAME[:WHERE]",
    help="Also to prometheus:PORT, tensorboard:FOLDER, jsonl:FILE or otel; may be given again.",
)
@opt.option("--quiet", is_flag=True, help="Print nothing of our own.")
def run(
    what: str,
    arguments: tuple[str, ...],
    module: bool,
    name: str,
    sinks: tuple[str, ...],
    quiet: bool,
) -> int:
    """Run a script or a module under a monitor; `torchstone monitor SCRIPT` is the same.

    What follows the script is its own, so give options before it. The exit code is the script's.
    The report comes at its end, on stderr.
    """
    import os
    import sys

    from torchstone.lab.monitor import MonitorRequest, compute_peak, run_script
    from torchstone.monitor.journal import open_record
    from torchstone.monitor.views import view_of
    from torchstone.show import monitor as shown
    from torchstone.show.blocks import render
    from torchstone.show.table import can_unicode

    quiet = quiet or os.environ.get("RANK", "0") != "0"  # the first rank speaks for all

    def started(ident: str) -> None:
        if not quiet:
            click.echo(f"torchstone: recording as {ident}; watch it: torchstone top", err=True)

    code, folder = run_script(MonitorRequest(what, arguments, module, name, sinks), started)
    record = open_record(folder)
    if not quiet and record.ranks:
        view = view_of(record)
        report = shown.view_report(view, compute_peak(view))
        click.echo(render(report, unicode=can_unicode(sys.stderr)), err=True, nl=False)
    return code


@monitor.command("list")
@opt.json_flag
def list_(output: opt.Output) -> None:
    """List the monitors that are recorded on this machine, the newest first."""
    from torchstone.monitor.views import views
    from torchstone.show import monitor as shown

    found = views(everything=True)
    output.deliver_report(partial(shown.list_report, found), partial(shown.dumps, found))


@monitor.command()
@click.argument("id")
@opt.output_options
def show(id: str, output: opt.Output) -> None:
    """Show what a monitor saw: by its id, its name, or `last`.

    \b
    Examples:
      torchstone monitor show last
      torchstone monitor show my-training --json - | python -m json.tool
    """
    from torchstone.lab.monitor import compute_peak
    from torchstone.monitor.views import find_view
    from torchstone.show import monitor as shown

    view = find_view(id)
    report = partial(shown.view_report, view, compute_peak(view))
    output.deliver_report(report, partial(shown.dumps, view))


@monitor.command()
@click.argument("base", metavar="RUN_A")
@click.argument("new", metavar="RUN_B")
@opt.output_options
def compare(base: str, new: str, output: opt.Output) -> None:
    """Say what changed between two trainings, phase by phase.

    \b
    Examples:
      torchstone monitor compare baseline last
    """
    from torchstone.monitor.journal import find_record
    from torchstone.monitor.views import compare as compare_monitors
    from torchstone.show import monitor as shown

    found = compare_monitors(find_record(base), find_record(new))
    output.deliver_report(partial(shown.compare_report, found), partial(shown.dumps, found))

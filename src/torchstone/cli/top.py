"""`torchstone top`: the monitors that run on this machine, live."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from torchstone.cli import options as opt
from torchstone.cli.app import harmless, screen

if TYPE_CHECKING:
    from torchstone.show.blocks import Report

WAYS = "trace|sample|count|memory"
LEAVE = ("q", "Q", "\x1b", "\x04")


@click.command()
@click.argument("id", required=False)
@opt.option("--once", is_flag=True, help="Print once and end.")
@opt.option("--every", type=opt.DURATION, default="1s", help="Between two looks.")
@opt.option("--all", "everything", is_flag=True, help="Show monitors that have ended too.")
@opt.option("--profile", type=click.IntRange(1, 10_000), metavar="N", help="Profile N steps.")
@opt.option("--how", default="trace", metavar=WAYS, help="In which way --profile looks.")
@opt.option("--timeout", type=opt.DURATION, default="60s", help="For the profile to be there.")
@opt.database_option
@opt.json_flag
def top(
    id: str | None,
    once: bool,
    every: float,
    everything: bool,
    profile: int | None,
    how: str,
    timeout: float,
    db: str | None,
    output: opt.Output,
) -> int:
    """Show the trainings and services that are monitored on this machine, live.

    A row a rank: rate, step time, where it goes. `?` is what cannot be seen there. Leave with q or
    Ctrl-C. With --profile N, the next N steps of the running training (ID, where several run) are
    profiled, and the profile is stored.

    \b
    Examples:
      torchstone top
      torchstone top --once --json
      torchstone top my-training --profile 20
    """
    if profile is not None:
        return _profile(id, profile, how, timeout, db)
    from torchstone.monitor.views import MonitorView, find_view, views
    from torchstone.show import monitor as shown

    def look() -> list[MonitorView]:
        return [find_view(id)] if id is not None else list(views(everything))

    found = look()
    if once or output.alone or not sys.stdout.isatty():
        report = partial(shown.top_report, found, time.time())
        output.deliver_report(report, partial(shown.dumps, found))
        return opt.Exit.OK
    with contextlib.suppress(KeyboardInterrupt), _whole_screen() as key:
        while True:
            _draw(shown.top_report(found, time.time()))
            if key(every) in LEAVE:
                break
            found = look()
    return opt.Exit.OK


def _draw(report: Report) -> None:
    from torchstone.show.blocks import render
    from torchstone.show.table import can_unicode

    size = shutil.get_terminal_size()
    drawn = render(
        report,
        color=not os.environ.get("NO_COLOR"),
        width=size.columns,
        unicode=can_unicode(sys.stdout),
    )
    lines = drawn.splitlines()[: max(1, size.lines - 1)]
    body = "".join(f"{harmless(line)}\x1b[K\r\n" for line in lines)
    screen().write(f"\x1b[H{body}\x1b[J")
    screen().flush()


@contextlib.contextmanager
def _whole_screen() -> Iterator[Callable[[float], str]]:
    """The other screen, without a cursor; a function that waits for a key. All is put back."""
    import termios
    import tty

    def key(seconds: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return os.read(sys.stdin.fileno(), 1).decode("latin-1") if ready else ""

    interactive = sys.stdin.isatty()
    before = termios.tcgetattr(sys.stdin) if interactive else None
    screen().write("\x1b[?1049h\x1b[?25l")
    try:
        if interactive:
            tty.setcbreak(sys.stdin)
            yield key
        else:
            yield _sleep
    finally:
        screen().write("\x1b[?25h\x1b[?1049l")
        screen().flush()
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _profile(id: str | None, steps: int, how: str, timeout: float, db: str | None) -> int:
    from torchstone.lab.monitor import ask_for_profile

    click.echo(f"Waiting for {steps} steps.", err=True)
    ident, recorder = ask_for_profile(id, steps, how, timeout, db)
    if not recorder.storage_warnings:
        click.echo(f"Profiled. Look at it: torchstone show {ident}")
    return opt.print_storage_warnings(recorder, 0)

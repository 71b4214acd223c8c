"""`torchstone bisect`."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from torchstone.cli import options as opt
from torchstone.cli.check import how_to_run, never_by_chance, revision_options


@click.command()
@click.argument("good")
@click.argument("bad")
@click.argument("target")
@opt.option(
    "--confidence",
    type=opt.SHARE,
    default="95%",
    help="Stop when a commit is this certain to be the one.",
)
@opt.option(
    "--most-probes", type=int, help="Commits measured at most, repeats included (default: enough)."
)
@opt.option("--restart", is_flag=True, help="Forget what an earlier search of these measured.")
@revision_options
@opt.database_option
@opt.output_options
@opt.save_option("Keep the results.")
@never_by_chance
def bisect(
    good: str,
    bad: str,
    target: str,
    confidence: float,
    most_probes: int | None,
    restart: bool,
    db: str | None,
    save: bool,
    output: opt.Output,
    **asked: Any,
) -> int:
    """Find the commit between GOOD and BAD that changed a target's time.

    Each probe measures a commit against GOOD, turn by turn; the sizes of the effects, not a
    threshold, say which commit it is and how sure that is. Commits that cannot be built or measured
    are passed over. The same command goes on where an interrupted one ended.

    \b
    Exit codes:
      0  a commit (or two, or a few neighbours) is named     1  the ends do not differ
      2  a mistake in the request     3  not certain enough     4  could not run

    \b
    Examples:
      torchstone bisect v1.2 main benchmarks/model.py:make
      torchstone bisect HEAD~50 HEAD "/tmp/bench.py:step()" --build "make -j4"
      torchstone bisect v1.2 main model.py:make --confidence 99% --json answer.json
    """
    from torchstone.lab.bisect import BisectRequest
    from torchstone.lab.bisect import bisect as run
    from torchstone.lab.recording import Recorder
    from torchstone.show.bisect import bisect_dumps, bisect_report

    how = how_to_run({**asked, "margin": 0.03}, until="precise")
    request = BisectRequest(good, bad, target, confidence, most_probes, restart, how)
    recorder = Recorder(db, saves=save)
    with opt.progress() as events:
        report = run(request, recorder, events)
    output.deliver_report(partial(bisect_report, report), partial(bisect_dumps, report))
    opt.print_storage_warnings(recorder, 0)
    if report.interrupted:
        return opt.Exit.INTERRUPTED
    if report.answer == "none":
        return opt.Exit.FAILED
    return opt.Exit.OK if report.answer else opt.Exit.UNKNOWN

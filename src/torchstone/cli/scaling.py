"""`torchstone scaling`."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.records.scaling import Scaling


@click.command()
@click.argument("target")
@opt.option("--ranks", type=opt.WORDS, default="1,2", help="Numbers of ranks.")
@opt.option(
    "--parallel",
    type=opt.WORDS,
    default="ddp",
    help="Kinds: ddp, fsdp, fsdp-sum (FSDP2 told to sum, then divide), tp, pp.",
)
@opt.option("--threads-per-rank", type=int, default=1, help="Threads of each rank.")
@opt.option("--weak", is_flag=True, help="Fix the batch of a rank, not the whole batch.")
@opt.option("--budget", type=opt.DURATION, default="10s", help="Measurement time of all arms.")
@opt.option("--replicates", type=int, default=3, help="Fresh processes of each arm.")
@opt.option("--timeout", type=opt.DURATION, default="60s", help="Most time for one answer.")
@opt.database_option
@opt.output_options
@opt.save_option("Keep the result.")
def scaling(
    target: str,
    ranks: tuple[str, ...],
    parallel: tuple[str, ...],
    threads_per_rank: int,
    weak: bool,
    budget: float,
    replicates: int,
    timeout: float,
    db: str | None,
    output: opt.Output,
    save: bool,
) -> int:
    """Train TARGET over several ranks: efficiency, communication, gradients.

    Each arm is a group of ranks under torchrun (gloo on CPU), which takes turns with one rank
    through the same wrapper and with one plain process. Gradients are compared with those of one
    rank in float64. A rank that dies, hangs or holds up the others is named.

    \b
    Exit codes:
      0  every arm that could run is right     1  an arm failed, or its gradients are wrong
      2  a mistake in the request

    \b
    Examples:
      torchstone scaling model.py:make
      torchstone scaling model.py:make --parallel ddp,fsdp,fsdp-sum --ranks 2,4
      torchstone scaling model.py:make --weak --json scaling.json
    """
    from torchstone.lab.recording import Recorder
    from torchstone.lab.scaling import ScalingRequest, scale

    request = ScalingRequest(
        target,
        tuple(int(word) if word.isdecimal() else 0 for word in ranks),
        parallel,
        weak,
        threads_per_rank,
        budget,
        replicates,
        timeout,
    )
    recorder = Recorder(db, saves=save)
    if save:
        recorder.check()
    shows = sys.stderr.isatty()
    found = scale(request, lambda text: click.echo(text, err=True) if shows else None)
    if save:
        with recorder.collect_errors("The result was not kept"):
            recorder.write(lambda store: store.save_scaling(found))
    deliver_scaling(output, found)
    failed = any(arm.measurement.outcome.failed for arm in found.arms)
    return opt.print_storage_warnings(recorder, opt.Exit.FAILED if failed else opt.Exit.OK)


def deliver_scaling(output: opt.Output, found: Scaling) -> None:
    """To the terminal, as Markdown or as JSON."""
    from torchstone.show.scaling import scaling_dumps, scaling_report

    output.deliver_report(partial(scaling_report, found), partial(scaling_dumps, found))

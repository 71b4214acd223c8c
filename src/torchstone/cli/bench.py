"""`torchstone bench`."""

from __future__ import annotations

from typing import Any

import click

from torchstone.cli import options as opt


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@opt.option(
    "--vs",
    multiple=True,
    metavar="VARIANT",
    help="Compare with this variant, e.g. "
    "inductor, inductor+dynamic, aot_eager, jit-trace (repeatable).",
)
@opt.option(
    "--arm",
    "arms",
    multiple=True,
    metavar="'KEY=VALUE ...'",
    help="One more arm: the first "
    "one with other settings (name, target, variant, mode, precision, device, threads, "
    "python, allocator, env.NAME).",
)
@opt.arm_options
@opt.process_options
@opt.option(
    "--budget",
    type=opt.DURATION,
    default="30s",
    help="Measurement time; starting processes, compiling and checks come on top.",
)
@opt.option(
    "--within",
    type=opt.SHARE,
    default="1%",
    help="Stop early once the 95 % interval is within ± this (not with --replicates).",
)
@opt.settings_options
@opt.option("--replicates", type=int, help="Processes per arm (default: as the budget allows).")
@opt.option(
    "--independent",
    is_flag=True,
    help="The arms compute different things: do not compare their outputs.",
)
@opt.option("--label", default="", help="A name to tell the result by in lists.")
@opt.database_option
@opt.output_options
@opt.save_option("Keep the result.")
@opt.strict_option
def bench(output: opt.Output, save: bool, strict: bool, db: str | None, **asked: Any) -> int:
    """Measure targets, compare variants.

    TARGET is path.py:make (a factory that returns (module_or_callable, inputs) or a Workload),
    path.py:fn() (a function timed as it is), or pkg.module:make. One target gives absolute
    figures. With more targets, --vs or --arm, the first arm is the baseline.

    \b
    Examples:
      torchstone bench model.py:make
      torchstone bench model.py:make --vs inductor --vs inductor+dynamic --mode training
      torchstone bench old.py:make new.py:make --budget 60s --json result.json
      torchstone bench "sort.py:run()" --arm "name=py313 python=python3.13"
      torchstone bench model.py:make --arm "name=two threads=2" --threads 1
    """
    from torchstone.lab import bench as lab
    from torchstone.lab.recording import Recorder
    from torchstone.lab.request import BenchRequest

    request = BenchRequest(settings=opt.take_settings(asked), **asked)
    recorder = Recorder(db, saves=save)
    with opt.progress() as events:
        result = lab.bench(request, recorder, events)
    opt.deliver_result(output, result, saved=recorder.has_kept, db=db)
    return opt.print_storage_warnings(recorder, opt.exit_code(result, strict))

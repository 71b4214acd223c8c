"""`torchstone bench`."""

from __future__ import annotations

from typing import Any

import click

from torchstone.cli import options as opt


@click.command()
@click.argument("targets", nargs=-1, metavar="TARGET...")
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
@opt.option(
    "--command",
    "commands",
    multiple=True,
    metavar="'WORDS ...'",
    help="Time a whole command instead of a target (repeatable: compared with the first). {name} "
    "stands for a value of --sweep.",
)
@opt.swept_options
@opt.process_options
@opt.effort_options
@opt.option(
    "--budget",
    type=opt.DURATION,
    help="Measuring time (default: 30s). Building, checking and compiling come on top, often "
    "minutes; --total bounds those too.",
)
@opt.option(
    "--within",
    type=opt.SHARE,
    help="Stop early once the 95 % interval is within ± this (default: 1%; not with --replicates).",
)
@opt.settings_options
@opt.option("--replicates", type=int, help="Processes per arm (default: as the budget allows).")
@opt.option(
    "--independent",
    is_flag=True,
    help="The arms compute different things: do not compare their outputs.",
)
@opt.verbose_option
@opt.option("--svg", metavar="FILE.svg", help="Of a sweep: write the picture as an SVG file.")
@opt.option("--label", default="", help="A name to tell the result by in lists.")
@opt.database_option
@opt.output_options
@opt.save_option("Keep the result.")
@opt.strict_option
def bench(
    output: opt.Output,
    save: bool,
    strict: bool,
    verbose: bool,
    db: str | None,
    svg: str | None,
    **asked: Any,
) -> int:
    """Measure targets, compare variants.

    TARGET is path.py:make (a factory that returns (module_or_callable, inputs) or a Workload),
    path.py:fn() (a function timed as it is), or pkg.module:make. One target gives absolute
    figures. With more targets, --vs or --arm, the first arm is the baseline.

    \b
    Examples:
      torchstone bench model.py:make
      torchstone bench model.py:make --vs inductor --fast
      torchstone bench model.py:make --vs inductor --vs inductor+dynamic --mode training
      torchstone bench old.py:make new.py:make --budget 60s --json result.json
      torchstone bench "sort.py:run()" --arm "name=py313 python=python3.13"
      torchstone bench model.py:make --arm "name=two threads=2" --threads 1
      torchstone bench model.py:make --threads 1,2,4
      torchstone bench model.py:make --vs inductor --sweep batch=1,8,32 --svg batch.svg
      torchstone bench --command "python train.py --steps 50" --command "python new.py --steps 50"
    """
    from torchstone.lab import bench as lab
    from torchstone.lab import sweep as swept
    from torchstone.lab.recording import Recorder
    from torchstone.lab.request import BenchRequest

    axes = opt.take_sweep(asked)
    request = BenchRequest(settings=opt.take_settings(asked), sweep=axes, **asked)
    swept.check_picture(svg, request)
    opt.check_path(svg)
    recorder = Recorder(db, saves=save)
    with opt.progress() as events:
        run = swept.sweep if swept.is_sweep(request) else lab.bench
        result = run(request, recorder, events)
    code = opt.exit_code(result, strict)
    code = opt.end_measurement(output, result, recorder, code, verbose=verbose)
    swept.write_picture(svg, result)
    return code

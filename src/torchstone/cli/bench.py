"""`torchstone bench` and `torchstone timeit`."""

from __future__ import annotations

from functools import partial
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


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("stmt", nargs=-1, metavar="[STMT...]")
@opt.option("-n", "--number", type=int, help="Executions per sample (default, or 0: found).")
@opt.option("-r", "--repeat", type=int, help="Samples per process (default: as the budget allows).")
@opt.option("-s", "--setup", multiple=True, help="Run before each sample, untimed (repeatable).")
@opt.option("-p", "--process", is_flag=True, help="Report CPU time instead of wall time.")
@opt.option("-u", "--unit", type=click.Choice(["nsec", "usec", "msec", "sec"]))
@opt.option("-v", "--verbose", is_flag=True, help="More digits, and every check.")
@opt.option("--vs", multiple=True, metavar="STMT", help="Compare with this statement (repeatable).")
@opt.option("--threads", type=int, help="Threads of OpenMP, BLAS and torch (default: theirs).")
@opt.option("--python", metavar="PYTHON", help="Interpreter to run in, e.g. python3.13.")
@opt.allocator_option
@opt.option(
    "--budget",
    type=opt.DURATION,
    default="3s",
    help="Measuring time; starting processes and warm-up come on top.",
)
@opt.option("--total", type=opt.DURATION, help="Bound on everything; then the result so far.")
@opt.option("--timeout", type=opt.DURATION, default="60s", help="For a sample.")
@opt.option("--replicates", type=int, help="Processes (default: as the budget allows).")
@opt.database_option
@opt.output_options
@opt.save_option("Keep the result.", default=False)
def timeit(
    stmt: tuple[str, ...],
    setup: tuple[str, ...],
    unit: str | None,
    verbose: bool,
    process: bool,
    vs: tuple[str, ...],
    output: opt.Output,
    save: bool,
    db: str | None,
    **asked: Any,
) -> int:
    """Time a statement, as `python -m timeit` does.

    Several STMT are lines of one statement; use --vs to compare statements. The answer is timeit's,
    with an interval over fresh processes and checks.

    \b
    Examples:
      torchstone timeit "'-'.join(map(str, range(100)))"
      torchstone timeit -s "x = list(range(1000))" "sorted(x)" --vs "x.copy().sort()"
      torchstone timeit -s "import numpy; x = numpy.ones((500, 500))" "x @ x" --threads 1
      torchstone timeit -n 1000 -r 5 -s "import torch; a = torch.ones(64)" "a + a"
    """
    from torchstone.conductor import Settings
    from torchstone.lab import bench
    from torchstone.lab.recording import Recorder
    from torchstone.show.terminal import passed_checks, report, timeit_report

    settings = Settings(
        budget_s=asked["budget"],
        loops=asked["number"] or None,
        samples=asked["repeat"],
        step_timeout_s=asked["timeout"],
        replicates=asked["replicates"],
        total_s=asked["total"],
    )
    recorder = Recorder(db, saves=save)
    with opt.progress() as events:
        result = bench.time_statements(
            ("\n".join(stmt) or "pass", *vs),
            "\n".join(setup) or "pass",
            settings,
            python=asked["python"],
            clock="cpu" if process else "wall",
            allocator=asked["allocator"],
            threads=asked["threads"],
            recorder=recorder,
            events=events,
        )

    single = partial(timeit_report, unit=unit, precision=6 if verbose else 3)

    def answer(result: Any, **how: Any) -> str:
        text = (report if vs else single)(result, verbose=verbose, **how)
        return text + passed_checks(result, how["width"]) if verbose else text

    return opt.end_measurement(output, result, recorder, opt.exit_code(result), answer)

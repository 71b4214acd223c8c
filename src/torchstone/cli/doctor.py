"""`torchstone doctor`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.lab.doctor import Visit


@click.command()
@opt.option("--calibrate", is_flag=True, help="Also measure what this machine can do at most.")
@opt.device_option
@opt.option("--fix", is_flag=True, help="Print commands that would help; none is run.")
@opt.option("--no-aa", is_flag=True, help="Do not measure two identical arms.")
@opt.database_option
@opt.output_options
def doctor(
    calibrate: bool,
    device: str,
    fix: bool,
    no_aa: bool,
    db: str | None,
    output: opt.Output,
) -> int:
    """Check whether this machine is suitable for benchmarking, today.

    Looks at all that may disturb a measurement, watches the machine for a second, and measures two
    identical arms for a few seconds to learn which differences can be seen here. Nothing is
    changed. Exit code 0: suitable, perhaps with care. 1: not suitable.

    \b
    Examples:
      torchstone doctor
      torchstone doctor --fix
      torchstone doctor --calibrate
      torchstone doctor --no-aa --json - | python -m json.tool
    """
    from torchstone.lab.doctor import DoctorRequest
    from torchstone.lab.doctor import doctor as examine
    from torchstone.lab.recording import Recorder
    from torchstone.show import doctor as shown

    request = DoctorRequest(device=device, identical=not no_aa, calibrate=calibrate)
    recorder = Recorder(db)
    with opt.progress() as events:
        visit = examine(request, recorder, events)
    output.deliver(
        partial(shown.doctor_report, visit.report, fixes=fix),
        partial(shown.doctor_dumps, visit.report),
        partial(shown.doctor_markdown, visit.report, fixes=fix),
    )
    return opt.print_storage_warnings(recorder, exit_code(visit))


def exit_code(visit: Visit) -> int:
    """Failed: the machine is not fit to measure on."""
    if visit.interrupted:
        return opt.Exit.INTERRUPTED
    return opt.Exit.OK if visit.report.fit else opt.Exit.FAILED

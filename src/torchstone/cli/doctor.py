"""`torchstone doctor`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import (
    INTERRUPTED,
    check_json_path,
    database_option,
    output_options,
    print_storage_warnings,
    progress,
    use_color,
    width,
)

if TYPE_CHECKING:
    from torchstone.lab.doctor import Visit


@click.command()
@click.option("--calibrate", is_flag=True, help="Also measure what this machine can do at most.")
@click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda|...")
@click.option("--fix", is_flag=True, help="Print commands that would help; none is run.")
@click.option("--no-aa", is_flag=True, help="Do not measure two identical arms.")
@database_option
@output_options
def doctor(
    calibrate: bool,
    device: str,
    fix: bool,
    no_aa: bool,
    db: str | None,
    json_path: str | None,
    markdown: bool,
) -> int:
    """Say whether this machine is fit to measure on, today.

    Looks at all that may disturb a measurement, watches the machine for a second, and measures two
    identical arms for a few seconds to learn which differences can be seen here. Nothing is
    changed. Exit code 0: fit, perhaps with care. 1: not fit.

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

    check_json_path(json_path)
    request = DoctorRequest(device=device, identical=not no_aa, calibrate=calibrate)
    recorder = Recorder(db)
    with progress() as events:
        visit = examine(request, recorder, events)
    return print_storage_warnings(recorder, _deliver(visit, json_path, markdown, fix))


def _deliver(visit: Visit, json_path: str | None, markdown: bool, fix: bool) -> int:
    from torchstone.lab.output_files import write_file
    from torchstone.show import can_unicode
    from torchstone.show.doctor import doctor_dumps, doctor_markdown, doctor_report

    report = visit.report
    if json_path == "-":
        click.echo(doctor_dumps(report))
    else:
        if json_path is not None:
            write_file(json_path, doctor_dumps(report) + "\n")
        if markdown:
            text = doctor_markdown(report, fixes=fix)
        else:
            text = doctor_report(
                report,
                color=use_color(),
                width=width(),
                unicode=can_unicode(sys.stdout),
                fixes=fix,
            )
        click.echo(text, nl=False, color=True)
    if visit.interrupted:
        return INTERRUPTED
    return int(not report.fit)

"""A run, printed in the form that was asked for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import named_database, use_color, width

if TYPE_CHECKING:
    from torchstone.records import RunView


def deliver_run(
    view: RunView,
    json_path: str | None,
    *,
    markdown: bool = False,
    csv: bool = False,
    commands: bool = False,
    db: str | None = None,
) -> None:
    """The report, Markdown, CSV or JSON of a run. `db`: the database it is in, as it was named."""
    from torchstone import show, stats
    from torchstone.lab.outputs import write_file

    summaries = stats.summarise(view.complete)
    if json_path == "-":
        click.echo(show.run_dumps(view, summaries))
        return
    if json_path is not None:
        write_file(json_path, show.run_dumps(view, summaries) + "\n")
    if csv:
        click.echo(show.run_csv(view), nl=False)
    elif markdown:
        click.echo(show.run_markdown(view, summaries), nl=False)
    else:
        text = show.run_report(
            view,
            summaries,
            color=use_color(),
            width=width(),
            unicode=show.can_unicode(sys.stdout),
            commands=commands,
            db=named_database(db),
        )
        click.echo(text, nl=False, color=True)

"""`torchstone validate`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import check_json_path, database_option, use_color

if TYPE_CHECKING:
    from torchstone.lab.validate import Rejudged


@click.command()
@click.argument("id", metavar="ID|RUN")
@click.option("--save/--no-save", default=True, show_default=True, help="Keep the new judgement.")
@click.option("--strict", is_flag=True, help="Exit code 1 if a number is not to be believed.")
@database_option
@click.option(
    "--json", "json_path", metavar="PATH|-", help="Write JSON to a file; - prints it alone."
)
def validate(id: str, save: bool, strict: bool, db: str | None, json_path: str | None) -> int:
    """Judge stored results by the rules of today, without measuring.

    ID is a result, or a run (all of its results). Samples never change; what the rules say of them
    now is kept beside them and shown from then on.

    \b
    Examples:
      torchstone validate last
      torchstone validate nightly-0412 --strict
      torchstone validate 1jz3k --no-save --json -
    """
    from torchstone.lab.outputs import write_file
    from torchstone.lab.validate import validate_stored
    from torchstone.show import can_unicode, judgement_report

    check_json_path(json_path)
    judged = validate_stored(id, db, save=save)
    if json_path is not None:
        text = json.dumps(_document(judged), indent=2, allow_nan=False)
        if json_path == "-":
            click.echo(text)
        else:
            write_file(json_path, text + "\n")
    if json_path != "-":
        pairs = [(one.after, one.changes) for one in judged]
        text = judgement_report(pairs, color=use_color(), unicode=can_unicode(sys.stdout))
        click.echo(text, nl=False, color=True)
    skipped = sum(one.skipped for one in judged)
    if skipped:
        click.echo(
            f"note: {skipped} of {len(judged)} results keep what was said of them: their samples "
            "were removed (`torchstone db thin`)",
            err=True,
        )
    return int(strict and any(one.failed for one in judged))


def _document(judged: list[Rejudged]) -> dict[str, object]:
    from torchstone.show import document

    return {
        "schema": 1,
        "results": [
            {"changes": list(one.changes), "failed": one.failed, "result": document(one.after)}
            for one in judged
        ],
    }

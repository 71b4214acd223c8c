"""`torchstone show` and `torchstone list`: what is kept."""

from __future__ import annotations

import json
import sys

import click

from torchstone.cli.options import (
    check_json_path,
    database_option,
    deliver,
    output_options,
    use_color,
    width,
)


@click.command()
@click.argument("id")
@database_option
@output_options
def show(id: str, db: str | None, json_path: str | None, markdown: bool) -> int:
    """Show a stored result.

    ID may be shortened as long as it is unique; `last` is the newest.

    \b
    Examples:
      torchstone show last
      torchstone show 1jz3k --markdown
      torchstone show last --json -
    """
    from torchstone.store import open_store

    check_json_path(json_path)
    with open_store(db, create=False, read_only=True) as store:
        result = store.load(id)
    deliver(result, json_path, markdown, saved=True)
    return 0


@click.command("list")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True)
@click.option("--arm", help="Only results with an arm of this name.")
@click.option("--since", metavar="DATE", help="Only results made at or after this (ISO 8601).")
@database_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_results(
    limit: int, arm: str | None, since: str | None, db: str | None, as_json: bool
) -> None:
    """List stored results, newest first.

    \b
    Examples:
      torchstone list
      torchstone list --arm inductor --since 2026-01-01
    """
    from torchstone import show as shown
    from torchstone.records import to_data
    from torchstone.store import open_store

    with open_store(db, create=False, read_only=True) as store:
        rows = store.list(limit=limit, arm=arm, since=since)
    if as_json:
        click.echo(json.dumps({"schema": 1, "results": [to_data(row) for row in rows]}, indent=2))
        return
    unicode = shown.can_unicode(sys.stdout)
    click.echo(
        shown.listing(rows, color=use_color(), width=width(), unicode=unicode), nl=False, color=True
    )

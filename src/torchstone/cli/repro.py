"""`torchstone repro`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from torchstone.cli.options import (
    Duration,
    check_json_path,
    database_option,
    deliver,
    exit_code,
    output_options,
    progress,
)
from torchstone.cli.unkept import tell_troubles

if TYPE_CHECKING:
    from torchstone.lab.repro import Reproduction


@click.command()
@click.argument("id")
@click.option("--trust", is_flag=True, help="Run a record that came from elsewhere.")
@click.option("--recipe", metavar="DIR", help="Write a lock file and a Containerfile; run nothing.")
@click.option("--budget", type=Duration(), help="Another budget than the stored one.")
@database_option
@output_options
@click.option("--save/--no-save", default=True, show_default=True, help="Keep the new result.")
def repro(
    id: str,
    trust: bool,
    recipe: str | None,
    budget: float | None,
    db: str | None,
    json_path: str | None,
    markdown: bool,
    save: bool,
) -> int:
    """Measure a stored result again; compare with the old.

    \b
    Examples:
      torchstone repro last
      torchstone repro 1jz3k --budget 60s
      torchstone repro 1jz3k --recipe rebuild/
    """
    from torchstone.lab.keeping import Keeper
    from torchstone.lab.recipe import write_recipe
    from torchstone.lab.repro import BETWEEN_SESSIONS
    from torchstone.lab.repro import repro as again
    from torchstone.show import format_ratio, sanitise
    from torchstone.store import open_store

    check_json_path(json_path)
    with open_store(db, create=False, read_only=True) as store:
        stored = store.load(id)
    if recipe is not None:
        for path in write_recipe(stored, recipe):
            click.echo(f"wrote {path}")
        return 0
    keeper = Keeper(db)
    with progress() as events:
        done = again(
            stored, trust=trust, keeper=keeper if save else None, events=events, budget_s=budget
        )
    result = done.combined if json_path else done.new
    deliver(result, json_path, markdown, saved=keeper.has_kept, db=db)
    if json_path != "-":
        click.echo(f"\nagainst {stored.id} of {stored.created}:")
        if stored.thinned:
            click.echo(
                f"  its samples were removed on {stored.thinned.created[:10]}, so only its "
                f"figures can be compared: torchstone show {stored.id}"
            )
        _tell_changes(done)
        for one in (*done.speedups, *done.against_stored):
            ratio = format_ratio(one.time_ratio) if one.time_ratio else "-"
            span = f" [{one.interval[0]:.3f}, {one.interval[1]:.3f}]" if one.interval else ""
            why = f" ({sanitise(one.reason)})" if one.time_ratio is None and one.reason else ""
            said = f"time ratio {ratio}{span}: {one.verdict.value}{why}"
            click.echo(f"  {sanitise(one.new)}: {said}")
        if done.against_stored:
            click.echo(f"  {BETWEEN_SESSIONS}")
    return tell_troubles(keeper, exit_code(done.new))


def _tell_changes(done: Reproduction) -> None:
    """What is not as it was, before any ratio: it may be what a difference comes from."""
    from torchstone.show import sanitise

    for one in done.changes:
        some = len(one.arms) < len(done.new.arms)
        arms = f"{', '.join(one.arms)}: " if some else ""
        click.echo(f"  not as it was: {sanitise(arms + one.sentence)}")

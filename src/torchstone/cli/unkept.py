"""What could not be kept is told after the report, never instead of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from torchstone.lab.keeping import Keeper


def tell_troubles(keeper: Keeper | None, code: int) -> int:
    """Say on stderr what the database refused, and why; the exit code is then not 0."""
    from torchstone.show import sanitise

    troubles = keeper.troubles if keeper is not None else []
    for one in troubles:
        click.echo(f"torchstone: {sanitise(one.message)}", err=True)
        if one.remedy:
            click.echo(f"  {sanitise(one.remedy)}", err=True)
    return code or int(bool(troubles))

"""`torchstone serve`: the dashboard. The server is found by entry point, as a plug-in is."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import click

from torchstone.cli.options import database_option

ENTRY_POINTS = "torchstone.servers"
SERVER = "web"


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8484, show_default=True)
@click.option("--public", is_flag=True, help="Allow a --host that others can reach.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="A host name by which others call this machine; may be given again.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open a browser.")
@database_option
def serve(**asked: Any) -> int:
    """Show stored runs as a dashboard in the browser. It only reads.

    \b
    Examples:
      torchstone serve
      torchstone serve --db nightly.db --port 9000 --open
      torchstone serve --host 0.0.0.0 --public --name lab.example
    """
    return int(load(SERVER)(click.echo, **asked))


def load(name: str, group: str = ENTRY_POINTS) -> Any:
    """What the entry point of that name stands for; a sentence where its libraries are missing."""
    from torchstone.records import UsageError

    for point in metadata.entry_points(group=group, name=name):
        try:
            return point.load()
        except ModuleNotFoundError as error:
            raise UsageError(
                f"The dashboard needs {error.name}, which is not installed.",
                "Install it: pip install 'torchstone[web]'.",
            ) from None
    raise UsageError(
        "Torchstone's own plug-ins are not to be found.",
        "Install the package (`pip install .`); a folder on PYTHONPATH is not enough.",
    )

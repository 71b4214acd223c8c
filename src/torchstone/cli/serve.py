"""`torchstone serve`: the dashboard, which is loaded as a plug-in is: commands do not import it."""

from __future__ import annotations

from typing import Any

import click

from torchstone.cli import options as opt

SERVER = "torchstone.web.serving:serve"
EXPORT_SITE = "torchstone.web.site:export_site"
REPOSITORY = "Where commits are linked to (default: the run's own remote)."


@click.command()
@opt.option("--host", default="127.0.0.1", help="Address to listen on.")
@opt.option("--port", type=click.IntRange(0, 65535), default=8484)
@opt.option("--public", is_flag=True, help="Allow a --host that others can reach.")
@opt.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="A host name by which others call this machine; may be given again.",
)
@opt.option("--repository", default="", metavar="URL", help=REPOSITORY)
@opt.option("--accept-pushes", is_flag=True, help="Take runs from `torchstone push`, by token.")
@opt.option("--open", "open_browser", is_flag=True, help="Open a browser.")
@opt.database_option
def serve(**asked: Any) -> int:
    """Show stored runs as a dashboard in the browser. It only reads.

    With --accept-pushes it also takes whole runs, from those who have a token (`torchstone token`).

    \b
    Examples:
      torchstone serve
      torchstone serve --db nightly.db --port 9000 --open
      torchstone serve --host 0.0.0.0 --public --name lab.example
      torchstone serve --db lab.db --accept-pushes
    """
    return int(load(SERVER)(click.echo, **asked))


def load(value: str) -> Any:
    """The function `module:name` of the dashboard; a sentence where its libraries are missing."""
    from importlib.metadata import EntryPoint

    from torchstone.records import UsageError

    try:
        return EntryPoint("", value, "").load()
    except ModuleNotFoundError as error:
        raise UsageError(
            f"The dashboard needs {error.name}, which is not installed.",
            "Install it: pip install 'torchstone[web]'.",
        ) from None

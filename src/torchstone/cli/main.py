"""The entry point: every error ends here as one sentence, a remedy and an exit code."""

from __future__ import annotations

import os
import sys

import click

from torchstone import __version__
from torchstone.cli.bench import bench
from torchstone.cli.contract import contract
from torchstone.cli.repro import repro
from torchstone.cli.stored import list_results, show
from torchstone.cli.timeit import timeit

SECTIONS = {
    "Measure": (bench, timeit),
    "Judge": (contract, repro),
    "Track and show": (show, list_results),
}
INTERRUPTED = 130


class GroupedHelp(click.Group):
    """Commands under headings, in the order a newcomer needs them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per heading."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(str(c.name), c.get_short_help_str(70)) for c in commands])


@click.group(cls=GroupedHelp, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="torchstone")
def cli() -> None:
    """Torchstone tells true PyTorch performance from false.

    \b
    Examples:
      torchstone bench model.py:make --vs inductor
      torchstone bench a.py:make b.py:make --budget 60s
      torchstone timeit -s "x = list(range(1000))" "sorted(x)"
      torchstone list
    """


for _commands in SECTIONS.values():
    for _command in _commands:
        cli.add_command(_command)


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        code = done.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("torchstone: interrupted", err=True)
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`); Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        code = _report(error)
    sys.exit(code if isinstance(code, int) else 0)


def _report(error: Exception) -> int:
    from torchstone.records import TorchstoneError

    if not isinstance(error, TorchstoneError):
        raise error
    click.echo(f"torchstone: {error.message}", err=True)
    if error.remedy:
        click.echo(f"  {error.remedy}", err=True)
    return error.exit_code

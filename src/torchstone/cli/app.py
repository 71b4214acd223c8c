"""The commands, and the one place where an error becomes a sentence, a remedy, an exit code."""

from __future__ import annotations

import os
import sys

import click

from torchstone import __version__
from torchstone.cli.bench import bench
from torchstone.cli.compare import compare
from torchstone.cli.contract import contract
from torchstone.cli.db import db, export, import_
from torchstone.cli.doctor import doctor
from torchstone.cli.explain import explain
from torchstone.cli.main import help_text
from torchstone.cli.options import INTERRUPTED
from torchstone.cli.profile import profile
from torchstone.cli.run import run as run_suites
from torchstone.cli.serve import serve
from torchstone.cli.stored import list_results, repro, show, validate
from torchstone.cli.timeit import timeit


class CommandGroup(click.Group):
    """All commands; the help comes from the entry point."""

    def get_help(self, ctx: click.Context) -> str:
        """The same text as without click."""
        return help_text().rstrip()


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="torchstone")
def cli() -> None:
    """Torchstone tells true PyTorch performance from false."""


for _command in (
    bench,
    timeit,
    run_suites,
    doctor,
    validate,
    contract,
    repro,
    profile,
    explain,
    show,
    list_results,
    compare,
    serve,
    export,
    import_,
    db,
):
    cli.add_command(_command)


def run() -> int:
    """Run the command line; returns its exit code."""
    try:
        code = cli.main(standalone_mode=False, prog_name="torchstone")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        _say(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("torchstone: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`); Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return _report(error)


def _report(error: Exception) -> int:
    from torchstone.records import TorchstoneError

    if not isinstance(error, TorchstoneError):
        raise error
    click.echo(f"torchstone: {error.message}", err=True)
    if error.remedy:
        click.echo(f"  {error.remedy}", err=True)
    return error.exit_code


def _say(error: click.ClickException) -> None:
    """One voice for all mistakes: a sentence, and what to do."""
    text = error.format_message()
    click.echo(f"torchstone: {text}" + ("" if text.endswith((".", "?", ")")) else "."), err=True)
    context = getattr(error, "ctx", None)
    if context is not None:
        click.echo(f"  See `{context.command_path} --help`.", err=True)

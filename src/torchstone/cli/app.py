"""The commands, and the one place where an error becomes a sentence, a remedy, an exit code."""

from __future__ import annotations

import os
import re
import signal
import sys
from functools import cache
from importlib import import_module
from typing import Any, TextIO

import click

from torchstone import __version__
from torchstone.cli import options as opt
from torchstone.cli.main import SECTIONS, help_text

NAMES = [name for names in SECTIONS.values() for name in names]
_MODULES = {
    **dict.fromkeys(("show", "list", "repro", "validate"), "stored"),
    **dict.fromkeys(("export", "import"), "db"),
    **dict.fromkeys(("push", "token"), "push"),
    **dict.fromkeys(("compare", "history", "regressions"), "track"),
    "bisect": "check",
    "serve": "db",
    "timeit": "bench",
    "tune": "explain",
}
"""Of commands that share a module; any other has one of its name."""


class CommandGroup(click.Group):
    """All commands, each imported when it is named; the help comes from the entry point."""

    def get_help(self, ctx: click.Context) -> str:
        """The same text as without click."""
        return help_text().rstrip()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the help."""
        return NAMES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; where there is none of that name, all are loaded, to name a similar one."""
        for name in [cmd_name] if cmd_name in NAMES else NAMES:
            module = import_module(f"torchstone.cli.{_MODULES.get(name, name)}")
            for found in vars(module).values():
                if isinstance(found, click.Command) and found.name == name:
                    self.add_command(found)
        return super().get_command(ctx, cmd_name)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="torchstone")
def cli() -> None:
    """Torchstone tells true PyTorch performance from false."""


def run() -> int:
    """Run the command line; returns its exit code. SIGTERM ends it as Ctrl-C does."""
    told: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        told.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # whoever ignores it has a reason
        signal.signal(signal.SIGTERM, interrupt)
    reopen_closed()
    guard_terminal()
    code = _run()
    return opt.Exit.TERMINATED if told and code == opt.Exit.INTERRUPTED else code


def _run() -> int:
    try:
        code = cli.main(standalone_mode=False, prog_name="torchstone")
        sys.stdout.flush()
        return code if isinstance(code, int) else opt.Exit.OK
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        text = error.format_message().replace("\n\t", " ")  # click lists choices so
        context = getattr(error, "ctx", None)
        remedy = f"See `{context.command_path} --help`." if context is not None else ""
        _say(text if text.endswith((".", "?", ")")) else f"{text}.", remedy)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        return opt.Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`); Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return opt.Exit.FAILED
    except Exception as error:
        from torchstone.records import TorchstoneError

        if not isinstance(error, TorchstoneError):
            raise
        _say(error.message, error.remedy)
        return error.exit_code


def _say(message: str, remedy: str = "") -> None:
    """One voice for all mistakes: a sentence, and what to do. It may name anything that somebody
    put into a file or a command line."""
    for line in (f"torchstone: {message}", f"  {remedy}" if remedy else ""):
        if line:
            click.echo(line if line.isprintable() else _harmless(line), err=True)


def _harmless(line: str) -> str:
    from torchstone.show.table import sanitise

    return "\n".join(sanitise(part) for part in line.split("\n"))


# What may reach a terminal: text, and our own colours.

_PLAIN = re.compile(r"[\n\t\x20-\x7e]*")
_SECRET = f"\x1b{os.urandom(8).hex()}["
"""Nobody can put our colours into a name who does not know this."""


class Gate:
    """A terminal's stream. `trusted` is the stream itself, for progress, which moves the cursor."""

    def __init__(self, trusted: TextIO) -> None:
        self.trusted = trusted

    def write(self, text: str) -> int:
        """Write the text; characters without a picture become escapes (`\\x1b`)."""
        if not isinstance(text, str):
            raise TypeError(f"write() takes str, not {type(text).__name__}")
        self.trusted.write(text if _PLAIN.fullmatch(text) else harmless(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """All of them, through the gate."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trusted, name)


def harmless(text: str) -> str:
    """The text with our own colours, line ends and tabs, and nothing else that has no picture."""
    from torchstone.show.table import sanitise, unmarked

    parts = _ours().split(text)
    return "".join(unmarked(part) if i % 2 else sanitise(part) for i, part in enumerate(parts))


@cache
def _ours() -> re.Pattern[str]:
    from torchstone.show.table import COLOUR_CODES

    codes = "|".join(re.escape(code) for code in COLOUR_CODES)
    return re.compile(f"({re.escape(_SECRET)}(?:0|{codes})m|\n|\t)")


def screen() -> TextIO:
    """The terminal itself, for cursor movements of ours and for texts that are harmless."""
    found: TextIO = getattr(sys.stdout, "trusted", sys.stdout)
    return found


def reopen_closed() -> None:
    """Standard streams that the caller has closed (`>&-`), so that no file of ours gets their
    numbers. Writing to standard output then fails, as on a full disk; messages go nowhere."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            mode = os.O_WRONLY if name == "stderr" else os.O_RDONLY
            opened = os.open(os.devnull, mode)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            stream = open(number, "r" if name == "stdin" else "w", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def guard_terminal() -> None:
    """From here on, all that this program writes to a terminal goes through the gate."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, Gate):
            from torchstone.show.table import mark_colours

            mark_colours(_SECRET)
            setattr(sys, name, Gate(stream))

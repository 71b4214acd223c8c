"""What several commands share: options and their units, where output goes, exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from torchstone.conductor import Settings
    from torchstone.lab.recording import Recorder
    from torchstone.records import Result
    from torchstone.show.progress import Progress


F = TypeVar("F", bound=Callable[..., Any])
PLAIN_WIDTH = 100
STDOUT = "-"
MODES = "inference|training"
PRECISIONS = "fp32|tf32|bf16|fp16|amp|amp-bf16|amp-fp16"
DEVICES = "cpu|cuda|..."
_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "min": 60.0, "h": 3600.0}


class Exit(IntEnum):
    """How a command ends."""

    OK = 0
    FAILED = 1
    """Something that was measured, checked or compared failed, or could not be stored."""
    USAGE = 2
    """The request itself cannot be carried out; nothing was measured (`UsageError`)."""
    INTERRUPTED = 130
    """Ctrl-C, as of a program that SIGINT ended."""


# Values that are more than a word.


class Parsed(click.ParamType):  # type: ignore[type-arg]
    """A word read by `parse`, which raises `ValueError` with what to write instead."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What the word says; a value that is none, such as a default, is as it should be."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse_duration(text: str) -> float:
    """Seconds of `30s`, `500ms`, `2m`, or a plain number of seconds."""
    match = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is not a duration; write 30s, 500ms or 2m")
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds <= 0:
        raise ValueError(f"{text} is not more than zero")
    return seconds


def _parse_share(text: str) -> float:
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        raise ValueError(f"{text!r} is not a share; write 1% or 0.01") from None
    if not 0 < share < 1:
        raise ValueError(f"{text} is not between 0 and 100 %")
    return share


def _parse_assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError("write NAME=VALUE")
    return name, value


def _parse_words(text: str) -> tuple[str, ...]:
    """In order, each once."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ValueError(f"{text!r} has an empty part; write a,b,c")
    return tuple(dict.fromkeys(words))


DURATION = Parsed("duration", parse_duration)
SHARE = Parsed("share", _parse_share)
ASSIGNMENT = Parsed("name=value", _parse_assignment)
WORDS = Parsed("a,b,...", _parse_words)


# Options.


def options(*several: Callable[[F], F]) -> Callable[[F], F]:
    """Options as one decorator, in the order in which help lists them."""

    def add(function: F) -> F:
        for option in reversed(several):
            function = option(function)
        return function

    return add


allocator_option = click.option(
    "--allocator",
    default="",
    metavar="keep|default|jemalloc|tcmalloc",
    help="Memory allocator of all arms; keep: never gives memory back; default: the system's "
    "own (default: keep, where the C library is glibc).",
)
database_option = click.option(
    "--db",
    metavar="URL",
    help="Database: a path or sqlite:///PATH (default: TORCHSTONE_DB, "
    "else torchstone.db in your data directory).",
)
device_option = click.option("--device", default="cpu", show_default=True, metavar=DEVICES)
json_option = click.option(
    "--json", "json_path", metavar="PATH|-", help="Write JSON to a file; - prints it alone."
)
json_flag = click.option("--json", "json_path", flag_value=STDOUT, help="Print JSON.")
margin_option = click.option(
    "--margin",
    type=SHARE,
    default="2%",
    show_default=True,
    help="Smallest ratio that counts as a change; also what `not slower` excludes.",
)
strict_option = click.option("--strict", is_flag=True, help="Exit 1 if any check fails.")
output_options = options(
    json_option,
    click.option("--markdown", is_flag=True, help="Print a Markdown table instead of the report."),
)
arm_options = options(
    click.option("--mode", default="inference", show_default=True, metavar=MODES),
    click.option("--precision", default="fp32", show_default=True, metavar=PRECISIONS),
    device_option,
    click.option("--threads", type=int, help="Threads of torch and OpenMP (default: theirs)."),
)
"""How a target is run: in all commands that run one."""
process_options = options(
    click.option("--python", metavar="PYTHON", help="Interpreter of all arms, e.g. python3.13."),
    click.option(
        "--env", multiple=True, type=ASSIGNMENT, help="Environment variable for all arms."
    ),
    allocator_option,
)
"""In which processes it is run."""
settings_options = options(
    margin_option,
    click.option("--seed", type=int, default=0, show_default=True),
    click.option("--timeout", type=DURATION, default="60s", show_default=True, help="For a step."),
    click.option(
        "--build-timeout",
        type=DURATION,
        default="600s",
        show_default=True,
        help="For building and compiling a model.",
    ),
    click.option(
        "--together/--apart",
        default=False,
        show_default=True,
        help="Run the arms of a replicate in one process, where their settings allow it.",
    ),
)
"""How a case is evaluated and how long it may take: `bench` and `run` alike."""


def save_option(help: str, default: bool = True) -> Callable[[F], F]:
    """`--save`."""
    return click.option("--save/--no-save", default=default, show_default=True, help=help)


def take_settings(asked: dict[str, Any]) -> Settings:
    """The settings among what was asked, taken out of it."""
    from torchstone.conductor import Settings

    return Settings(
        budget_s=asked.pop("budget"),
        within=asked.pop("within", Settings.within),
        margin=asked.pop("margin"),
        seed=asked.pop("seed"),
        step_timeout_s=asked.pop("timeout"),
        build_timeout_s=asked.pop("build_timeout"),
        replicates=asked.pop("replicates"),
        independent=asked.pop("independent", False),
        together=asked.pop("together"),
    )


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether an option was typed, not left to its default."""
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def named_database(db: str | None) -> str:
    """The database for commands that are printed; empty where it is the one they find anyway."""
    from torchstone.store.location import locate

    return db if db is not None and locate(db).path != locate(None).path else ""


# Output.


def check_path(path: str | None) -> None:
    """Find out before measuring whether the file can be written."""
    from torchstone.lab.output_files import ANOTHER, writable
    from torchstone.records import UsageError

    if path is None or path == STDOUT:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"There is no folder {folder} for {path}.", "Make it first.")
    if not writable(path):
        raise UsageError(f"{path} cannot be written.", ANOTHER)


def deliver(
    report: Callable[..., str],
    *written: tuple[str | None, Callable[[], str]],
    instead: Callable[[], str] | None = None,
) -> bool:
    """Give a command's answer in the forms that were asked for.

    `written` are JSON and CSV, each with its path: a file's is written, `-` is printed and stands
    alone. Otherwise what is printed is the report, or `instead` (Markdown, say). Whether it was.
    """
    from torchstone.lab.output_files import write_file
    from torchstone.show.table import can_unicode

    alone = False
    for path, make in written:
        if path is None:
            continue
        text = make()
        text = text if text.endswith("\n") else f"{text}\n"
        if path == STDOUT:
            click.echo(text, nl=False)
            alone = True
        else:
            write_file(path, text)
    if alone:
        return False
    if instead is not None:
        click.echo(instead(), nl=False)
        return True
    tty = sys.stdout.isatty()
    text = report(
        color=tty and not os.environ.get("NO_COLOR"),
        width=shutil.get_terminal_size().columns if tty else PLAIN_WIDTH,
        unicode=can_unicode(sys.stdout),
    )
    click.echo(text, nl=False, color=True)
    return True


def deliver_lines(lines: Sequence[str], json_path: str | None, document: Callable[[], Any]) -> None:
    """Sentences, made safe for a terminal; or the document as JSON."""
    from torchstone.show.table import sanitise

    text = "".join(f"{sanitise(line)}\n" for line in lines)
    dumps = partial(json.dumps, indent=2, allow_nan=False)
    deliver(lambda **_: text, (json_path, lambda: dumps(document())))


def deliver_result(
    result: Result,
    json_path: str | None,
    markdown: bool,
    *,
    saved: bool,
    db: str | None = None,
    report: Callable[..., str] | None = None,
) -> None:
    """A result's report, Markdown or JSON."""
    from torchstone.show import markdown as shown
    from torchstone.show.terminal import report as usual

    deliver(
        partial(report or usual, result, saved=saved, db=named_database(db)),
        (json_path, partial(shown.dumps, result)),
        instead=partial(shown.markdown, result) if markdown else None,
    )


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress on stderr; cleared at the end."""
    from torchstone.show.progress import make_progress

    with make_progress(sys.stderr) as made:
        yield made


def exit_code(result: Result, strict: bool = False) -> int:
    """Failed: an arm did not do its work, or none could; when strict, also where a check fails."""
    if result.method.stopped_by == "interrupt":
        return Exit.INTERRUPTED
    failed = any(arm.outcome.failed for arm in result.arms)
    failed |= strict and any(check.level.value == "fail" for check in result.checks)
    return Exit.FAILED if failed or not any(arm.turns for arm in result.arms) else Exit.OK


def print_storage_warnings(recorder: Recorder | None, code: int) -> int:
    """Say on stderr, after the report and never instead of it, what the database refused, and why;
    the exit code is then not 0."""
    from torchstone.show.table import sanitise

    storage_warnings = recorder.storage_warnings if recorder is not None else []
    for one in storage_warnings:
        click.echo(f"torchstone: {sanitise(one.message)}", err=True)
        if one.remedy:
            click.echo(f"  {sanitise(one.remedy)}", err=True)
    return code or (Exit.FAILED if storage_warnings else Exit.OK)

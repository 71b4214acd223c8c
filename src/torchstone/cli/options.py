"""What several commands share: units on the command line, and where output goes."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from torchstone.conductor import Settings
    from torchstone.lab.recording import Recorder
    from torchstone.records import Result
    from torchstone.show import Progress


F = TypeVar("F", bound=Callable[..., Any])
INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a program that SIGINT ended."""
PLAIN_WIDTH = 100
MODES = "inference|training"
PRECISIONS = "fp32|tf32|bf16|fp16|amp|amp-bf16|amp-fp16"
_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "min": 60.0, "h": 3600.0}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """`30s`, `500ms`, `2m`, or a plain number of seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(value))
        if match is None or match[2] not in _UNITS:
            self.fail(f"{value!r} is not a duration; write 30s, 500ms or 2m", param, ctx)
        seconds = float(match[1]) * _UNITS[match[2]]
        if seconds <= 0:
            self.fail(f"{value} is not more than zero", param, ctx)
        return seconds


class Share(click.ParamType):  # type: ignore[type-arg]
    """`1%` or `0.01`."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """A fraction."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"{value!r} is not a share; write 1% or 0.01", param, ctx)
        if not 0 < share < 1:
            self.fail(f"{value} is not between 0 and 100 %", param, ctx)
        return share


class Assignment(click.ParamType):  # type: ignore[type-arg]
    """`NAME=VALUE`."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Name and value."""
        if isinstance(value, tuple):
            return value[0], value[1]
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail("write NAME=VALUE", param, ctx)
        return name, text


def arm_options(function: F) -> F:
    """How a target is run: in all commands that run one."""
    return _all_of(
        function,
        click.option("--mode", default="inference", show_default=True, metavar=MODES),
        click.option("--precision", default="fp32", show_default=True, metavar=PRECISIONS),
        click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda|..."),
        click.option("--threads", type=int, help="Threads of torch and OpenMP (default: theirs)."),
    )


def allocator_option(function: F) -> F:
    """`--allocator`."""
    return click.option(
        "--allocator",
        default="",
        metavar="keep|default|jemalloc|tcmalloc",
        help="Memory allocator of all arms; keep: never gives memory back; default: the system's "
        "own (default: keep, where the C library is glibc).",
    )(function)


def process_options(function: F) -> F:
    """In which processes it is run."""
    return _all_of(
        function,
        click.option(
            "--python", metavar="PYTHON", help="Interpreter of all arms, e.g. python3.13."
        ),
        click.option(
            "--env", multiple=True, type=Assignment(), help="Environment variable for all arms."
        ),
        allocator_option,
    )


def _all_of(function: F, *options: Callable[[F], F]) -> F:
    """The options in the order in which help lists them."""
    for option in reversed(options):
        function = option(function)
    return function


def within_option(function: F) -> F:
    """`--within`: for commands that may stop early."""
    return click.option(
        "--within",
        type=Share(),
        default="1%",
        show_default=True,
        help="Stop early once the 95 % interval is within ± this (not with --replicates).",
    )(function)


def settings_options(function: F) -> F:
    """How a case is evaluated and how long it may take: `bench` and `run` alike."""
    return _all_of(
        function,
        click.option(
            "--margin",
            type=Share(),
            default="2%",
            show_default=True,
            help="Smallest ratio that counts as a change; also what `not slower` excludes.",
        ),
        click.option("--seed", type=int, default=0, show_default=True),
        click.option(
            "--timeout", type=Duration(), default="60s", show_default=True, help="For a step."
        ),
        click.option(
            "--build-timeout",
            type=Duration(),
            default="600s",
            show_default=True,
            help="For building and compiling a model.",
        ),
    )


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
        together=asked.pop("together", False),
    )


def together_option(default: bool) -> Callable[[F], F]:
    """`--together`."""
    return click.option(
        "--together/--apart",
        default=default,
        show_default=True,
        help="Run the arms of a replicate in one process, where their settings allow it.",
    )


def strict_option(function: F) -> F:
    """`--strict`."""
    return click.option(
        "--strict",
        is_flag=True,
        help="Exit 1 if any check fails.",
    )(function)


def database_option(function: F) -> F:
    """`--db`."""
    return click.option(
        "--db",
        metavar="URL",
        help="Database: a path or sqlite:///PATH (default: TORCHSTONE_DB, "
        "else torchstone.db in your data directory).",
    )(function)


def named_database(db: str | None) -> str:
    """The database for commands that are printed; empty where it is the one they find anyway."""
    from torchstone.store.location import locate

    return db if db is not None and locate(db).path != locate(None).path else ""


def json_option(function: F) -> F:
    """`--json`."""
    return click.option(
        "--json", "json_path", metavar="PATH|-", help="Write JSON to a file; - prints it alone."
    )(function)


def output_options(function: F) -> F:
    """`--json` and `--markdown`."""
    function = click.option(
        "--markdown", is_flag=True, help="Print a Markdown table instead of the report."
    )(function)
    return json_option(function)


def check_json_path(path: str | None) -> None:
    """Find out before measuring whether the file can be written."""
    from torchstone.lab.output_files import ANOTHER, writable
    from torchstone.records import UsageError

    if path is None or path == "-":
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"There is no folder {folder} for the JSON file.", "Make it first.")
    if not writable(path):
        raise UsageError(f"{path} cannot be written.", ANOTHER)


def use_color() -> bool:
    """Colours only on a terminal, and not where NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def width() -> int:
    """The terminal's, or a fixed one when piped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PLAIN_WIDTH


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress on stderr; cleared at the end."""
    from torchstone.show import make_progress

    made = make_progress(sys.stderr)
    try:
        yield made
    finally:
        made.close()


def deliver(
    result: Result,
    json_path: str | None,
    markdown: bool,
    saved: bool,
    report: Callable[..., str] | None = None,
    strict: bool = False,
    db: str | None = None,
) -> int:
    """Print what was asked for; the exit code says whether every arm did its work."""
    from torchstone import show
    from torchstone.lab.output_files import write_file

    if json_path == "-":
        click.echo(show.dumps(result))
    else:
        if json_path is not None:
            write_file(json_path, show.dumps(result) + "\n")
        if markdown:
            click.echo(show.markdown(result), nl=False)
        else:
            write = report or show.report
            text = write(
                result,
                color=use_color(),
                width=width(),
                unicode=show.can_unicode(sys.stdout),
                saved=saved,
                db=named_database(db),
            )
            click.echo(text, nl=False, color=True)
    return exit_code(result, strict)


def exit_code(result: Result, strict: bool = False) -> int:
    """0: every arm did its work. 1: one did not, or none could; when strict, also where a check
    fails. 130: interrupted."""
    if result.method.stopped_by == "interrupt":
        return INTERRUPTED
    failed = any(arm.outcome.failed for arm in result.arms)
    failed |= strict and any(check.level.value == "fail" for check in result.checks)
    return int(failed or not any(arm.turns for arm in result.arms))


# What could not be kept is told after the report, never instead of it.


def print_storage_warnings(recorder: Recorder | None, code: int) -> int:
    """Say on stderr what the database refused, and why; the exit code is then not 0."""
    from torchstone.show import sanitise

    storage_warnings = recorder.storage_warnings if recorder is not None else []
    for one in storage_warnings:
        click.echo(f"torchstone: {sanitise(one.message)}", err=True)
        if one.remedy:
            click.echo(f"  {sanitise(one.remedy)}", err=True)
    return code or int(bool(storage_warnings))

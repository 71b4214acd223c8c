"""What several commands share: options and their units, where output goes, exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import click

if TYPE_CHECKING:
    from torchstone.conductor import Settings
    from torchstone.lab.recording import Recorder, StorageWarning
    from torchstone.records import Result
    from torchstone.show.blocks import Report
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
    UNKNOWN = 3
    """What was measured cannot answer the question (`check`, `bisect`)."""
    NOT_RUN = 4
    """A sound request that could not be carried out, so that there is no answer."""
    INTERRUPTED = 130
    """Ctrl-C, as of a program that SIGINT ended."""
    TERMINATED = 143
    """The same after SIGTERM."""


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


def _parse_axis(text: str) -> tuple[str, tuple[str, ...]]:
    name, equals, values = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise ValueError(f"{text!r} is no sweep; write batch=1,8,32")
    return name.strip(), _parse_words(values)


DURATION = Parsed("duration", parse_duration)
SHARE = Parsed("share", _parse_share)
ASSIGNMENT = Parsed("name=value", _parse_assignment)
WORDS = Parsed("a,b,...", _parse_words)
AXIS = Parsed("name=a,b,...", _parse_axis)


# Options.


def option(*names: str, **how: Any) -> Callable[[F], F]:
    """An option whose help says its default, where it has one."""
    return click.option(*names, show_default=how.get("default", "") not in ("", ()), **how)


def options(*several: Callable[[F], F]) -> Callable[[F], F]:
    """Options as one decorator, in the order in which help lists them."""

    def add(function: F) -> F:
        for option in reversed(several):
            function = option(function)
        return function

    return add


allocator_option = option(
    "--allocator",
    default="",
    metavar="keep|default|jemalloc|tcmalloc",
    help="Memory allocator of all arms; keep: never gives memory back; default: the system's "
    "own (default: keep, where the C library is glibc).",
)
database_option = option(
    "--db",
    metavar="URL",
    help="Database: a path or postgresql+psycopg://USER@HOST/NAME (default: TORCHSTONE_DB, "
    "else torchstone.db in your data directory).",
)
device_option = option("--device", default="cpu", metavar=DEVICES)
margin_option = option(
    "--margin",
    type=SHARE,
    default="2%",
    help="Smallest ratio that counts as a change; also what `not slower` excludes.",
)
effort_options = options(
    option(
        "--fast",
        is_flag=True,
        help="A decent answer within a minute: stop once the verdict is clear; fewer processes "
        "and checks, margin 5%, budget 5s.",
    ),
    option(
        "--rigorous",
        is_flag=True,
        help="At least 10 processes, a duplicate of the baseline, within 0.5%, budget 2m.",
    ),
    option(
        "--total",
        type=DURATION,
        help="Bound on everything: building, compiling, checks, measuring. When it is over you "
        "get the result so far.",
    ),
)
verbose_option = option(
    "-v", "--verbose", is_flag=True, help="Every check, and all details (as `show` has them)."
)
strict_option = option("--strict", is_flag=True, help="Exit 1 if any check fails.")
arm_options = options(
    option("--mode", default="inference", metavar=MODES),
    option("--precision", default="fp32", metavar=PRECISIONS),
    device_option,
    option("--threads", type=int, help="Threads of torch and OpenMP (default: theirs)."),
)
"""How a target is run: in all commands that run one."""
swept_options = options(
    option("--mode", default="inference", metavar=MODES),
    option(
        "--precision",
        type=WORDS,
        default="fp32",
        metavar=PRECISIONS,
        help="Several (fp32,bf16) are a sweep.",
    ),
    device_option,
    option(
        "--threads",
        type=WORDS,
        metavar="N[,N...]",
        help="Threads of torch and OpenMP (default: theirs); several (1,2,4) are a sweep.",
    ),
    option(
        "--sweep",
        type=AXIS,
        multiple=True,
        metavar="NAME=A,B,...",
        help="Call the factory with each of these values, e.g. batch=1,8,32 (repeatable: every "
        "combination). One table, kept as one result; --budget is for each case.",
    ),
)
"""The same in `bench`, which takes several values of them."""
interpreter_options = options(
    option("--python", metavar="PYTHON", help="Interpreter of all arms, e.g. python3.13."),
    option("--env", multiple=True, type=ASSIGNMENT, help="Environment variable for all arms."),
)
process_options = options(interpreter_options, allocator_option)
"""In which processes it is run."""
settings_options = options(
    option(
        "--margin",
        type=SHARE,
        help="Smallest ratio that counts as a change; also what `not slower` excludes "
        "(default: 2%, with --fast 5%).",
    ),
    option("--seed", type=int, default=0),
    option("--timeout", type=DURATION, default="60s", help="For a step."),
    option(
        "--build-timeout", type=DURATION, default="600s", help="For building and compiling a model."
    ),
    option(
        "--together/--apart",
        default=False,
        help="Run the arms of a replicate in one process, where their settings allow it.",
    ),
)
"""How a case is evaluated and how long it may take: `bench` and `run` alike."""


def save_option(help: str, default: bool = True) -> Callable[[F], F]:
    """`--save`."""
    return option("--save/--no-save", default=default, help=help)


def take_effort(asked: dict[str, Any]) -> str:
    """`fast`, `usual` or `rigorous`, from the two flags."""
    from torchstone.conductor.case import FAST, RIGOROUS, USUAL
    from torchstone.records import UsageError

    fast, rigorous = asked.pop("fast", False), asked.pop("rigorous", False)
    if fast and rigorous:
        raise UsageError("--fast and --rigorous exclude each other.", "Give one of them.")
    return FAST if fast else RIGOROUS if rigorous else USUAL


def take_settings(asked: dict[str, Any]) -> Settings:
    """The settings among what was asked, taken out of it."""
    from torchstone.lab.request import with_effort

    return with_effort(
        take_effort(asked),
        total_s=asked.pop("total", None),
        budget_s=asked.pop("budget"),
        within=asked.pop("within", None),
        margin=asked.pop("margin"),
        seed=asked.pop("seed"),
        step_timeout_s=asked.pop("timeout"),
        build_timeout_s=asked.pop("build_timeout"),
        replicates=asked.pop("replicates"),
        independent=asked.pop("independent", False),
        together=asked.pop("together"),
    )


def take_sweep(asked: dict[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The axes of a sweep among what was asked; single values of threads and precision are put
    back as they are."""
    from torchstone.records import UsageError

    axes = list(asked.pop("sweep"))
    for name in ("threads", "precision"):
        values = asked[name]
        if values is not None and len(values) > 1:
            axes.append((name, values))
            asked.pop(name)
        elif values is not None:
            asked[name] = values[0]
    threads = asked.get("threads")
    if threads is not None:
        if not threads.removeprefix("-").isdigit():
            raise UsageError(f"--threads {threads} is not a number.", "Write --threads 2 or 1,2,4.")
        asked["threads"] = int(threads)
    return tuple(axes)


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether an option was typed, not left to its default."""
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def named_database(db: str | None) -> str:
    """The database for commands that are printed; empty where it is the one they find anyway."""
    from torchstone.store.location import locate, redact

    found, usual = (locate(one) for one in (db, None))
    same = (found.path, found.url) == (usual.path, usual.url)
    return "" if db is None or same else redact(db)


# Output.


@dataclass(frozen=True)
class Output:
    """In which forms a command's answer is wanted: JSON and CSV in files, or printed alone (`-`);
    Markdown instead of the report."""

    json_path: str | None = None
    csv_path: str | None = None
    markdown: bool = False

    @property
    def alone(self) -> bool:
        """Whether JSON or CSV is printed, and nothing beside it."""
        return STDOUT in (self.json_path, self.csv_path)

    def check(self) -> None:
        """Find out before measuring whether the files can be written."""
        from torchstone.records import UsageError

        if self.json_path == self.csv_path == STDOUT:
            raise UsageError("JSON and CSV cannot both be printed.", "Write one of them to a file.")
        check_path(self.json_path)
        check_path(self.csv_path)

    def deliver(
        self,
        report: Callable[..., str],
        json: Callable[[], str],
        markdown: Callable[[], str] | None = None,
        csv: Callable[[], str] | None = None,
    ) -> None:
        """Write what is wanted in files, and print what is to stand alone, or else the report.

        What was measured is shown, whatever becomes of the files: a file that cannot be written is
        reported afterwards, and where nothing can be printed the report goes to standard error.
        """
        from torchstone.lab.output_files import NotWritten, write_file

        failed: NotWritten | None = None
        for path, make in ((self.json_path, json), (self.csv_path, csv)):
            if path is None or make is None:
                continue
            text = make()
            text = text if text.endswith("\n") else f"{text}\n"
            try:
                if path == STDOUT:
                    _print(text)
                else:
                    write_file(path, text)
            except NotWritten as error:
                failed = error
        if failed is not None or not self.alone:
            shown = self._shown(report, markdown)
            try:
                _print(shown, err=failed is not None and self.alone)
            except NotWritten as error:
                failed = error
                with suppress(NotWritten):
                    _print(shown, err=True)
        if failed is not None:
            raise failed

    def deliver_report(
        self,
        make: Callable[[], Report],
        json: Callable[[], str],
        csv: Callable[[], str] | None = None,
        markdown: Callable[[], Report] | None = None,
    ) -> None:
        """The same of a report in blocks; `markdown`: where Markdown has less in it."""
        from torchstone.show.blocks import render, to_markdown

        self.deliver(
            lambda **how: render(make(), **how),
            json,
            lambda: to_markdown((markdown or make)()),
            csv,
        )

    def _shown(self, report: Callable[..., str], markdown: Callable[[], str] | None) -> str:
        from torchstone.show.table import can_unicode

        if self.markdown and markdown is not None:
            return markdown()
        tty = sys.stdout.isatty()
        return report(
            color=tty and not os.environ.get("NO_COLOR"),
            width=shutil.get_terminal_size().columns if tty else PLAIN_WIDTH,
            unicode=can_unicode(sys.stdout),
        )


def _print(text: str, err: bool = False) -> None:
    """Print it; a reader that has gone away is another matter than a place that is full."""
    from torchstone.lab.output_files import not_written
    from torchstone.show.table import unmarked

    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        text = unmarked(text)  # made for a terminal that does not take it
    try:
        click.echo(text, nl=False, color=True, file=stream)
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is still in the buffer would fail once more when Python ends.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise not_written("Standard error" if err else "Standard output", error) from None


def _as_output(*several: Callable[[F], F]) -> Callable[[F], F]:
    """Options that the command is given together, as `output`, once it is known to be possible."""

    def add(function: F) -> F:
        @wraps(function)
        def command(
            *args: Any,
            json_path: str | None = None,
            csv_path: str | None = None,
            markdown: bool = False,
            **asked: Any,
        ) -> Any:
            output = Output(json_path, csv_path, markdown)
            output.check()
            return function(*args, output=output, **asked)

        return options(*several)(cast("F", command))

    return add


_json = option(
    "--json", "json_path", metavar="PATH|-", help="Write JSON to a file; - prints it alone."
)
_markdown = option("--markdown", is_flag=True, help="Print a Markdown table instead of the report.")
json_flag = _as_output(option("--json", "json_path", flag_value=STDOUT, help="Print JSON."))
json_option = _as_output(_json)
output_options = _as_output(_json, _markdown)
csv_options = _as_output(
    option("--csv", "csv_path", metavar="PATH|-", help="Write CSV to a file; - prints it alone."),
    _json,
    _markdown,
)
shown_options = _as_output(
    option("--csv", "csv_path", flag_value=STDOUT, help="Print a run's cases as CSV."),
    _json,
    _markdown,
)


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


def deliver_lines(output: Output, lines: Sequence[str], document: Callable[[], Any]) -> None:
    """Sentences, made safe for a terminal; or the document as JSON."""
    from torchstone.show.table import sanitise

    text = "".join(f"{sanitise(line)}\n" for line in lines)
    output.deliver(lambda **_: text, lambda: dumps(document()))


dumps = partial(json.dumps, indent=2, allow_nan=False)


def deliver_result(
    output: Output,
    result: Result,
    *,
    saved: bool,
    db: str | None = None,
    report: Callable[..., str] | None = None,
    verbose: bool = True,
) -> None:
    """A result's report, Markdown or JSON."""
    from torchstone.show import markdown as shown
    from torchstone.show.terminal import report as usual

    output.deliver(
        partial(
            report or partial(usual, verbose=verbose), result, saved=saved, db=named_database(db)
        ),
        partial(shown.dumps, result),
        partial(shown.markdown, result),
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


class HasStorageWarnings(Protocol):
    """A recorder, or the end of a run."""

    @property
    def storage_warnings(self) -> Sequence[StorageWarning]:
        """What the database refused."""


def print_storage_warnings(recorder: HasStorageWarnings, code: int) -> int:
    """Say on stderr, after the report and never instead of it, what the database refused, and why;
    the exit code is then not 0."""
    from torchstone.show.table import sanitise

    for one in recorder.storage_warnings:
        click.echo(f"torchstone: {sanitise(one.message)}", err=True)
        if one.remedy:
            click.echo(f"  {sanitise(one.remedy)}", err=True)
    return code or (Exit.FAILED if recorder.storage_warnings else Exit.OK)


def end_measurement(
    output: Output,
    result: Result,
    recorder: Recorder,
    code: int,
    report: Callable[..., str] | None = None,
    verbose: bool = True,
) -> int:
    """Show the result, then what the database refused, whatever became of the files."""
    try:
        deliver_result(
            output,
            result,
            saved=recorder.has_kept,
            db=recorder.url,
            report=report,
            verbose=verbose,
        )
    finally:
        code = print_storage_warnings(recorder, code)
    return code

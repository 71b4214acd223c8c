"""`torchstone check` and `torchstone bisect`: revisions of a target, measured now."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.lab.revisions import HowToRun
    from torchstone.records import CheckReport, TorchstoneError


F = TypeVar("F", bound=Callable[..., Any])
SUMMARY_LIMIT = 1 << 20
"""GitHub takes so many bytes of a step summary."""


revision_options = opt.options(
    opt.option(
        "--build",
        default="",
        metavar="CMD",
        help="Shell command that builds a revision, run in each work tree before anything is "
        "measured.",
    ),
    opt.option(
        "--import-path",
        multiple=True,
        metavar="FOLDER",
        help="Folder of the repository that Python imports from (repeatable; default: its top and "
        "src).",
    ),
    opt.option("--variant", default="eager", metavar="VARIANT", help="How the targets are run."),
    opt.arm_options,
    opt.option(
        "--python",
        metavar="PYTHON",
        help="Interpreter of both revisions; a relative path such as .venv/bin/python is looked "
        "for in each work tree first.",
    ),
    opt.option("--env", multiple=True, type=opt.ASSIGNMENT, help="Environment variable."),
    opt.allocator_option,
    opt.option(
        "--budget",
        type=opt.DURATION,
        default="20s",
        help="Most measurement time of a target; it ends as soon as the question is decided.",
    ),
    opt.option("--seed", type=int, default=0),
    opt.option("--timeout", type=opt.DURATION, default="60s", help="For a step."),
    opt.option(
        "--build-timeout",
        type=opt.DURATION,
        default="600s",
        help="For building and compiling a model.",
    ),
    opt.option(
        "--independent",
        is_flag=True,
        help="The change is meant to change outputs: do not compare them.",
    ),
)
"""How a revision is built and a target run in it: `check` and `bisect` alike."""
check_margin = opt.option(
    "--margin", type=opt.SHARE, default="3%", help="The smallest slow-down that matters."
)


def never_by_chance(function: F) -> F:
    """Exit code 1 means slower and nothing else: whatever goes wrong unforeseen ends with 4."""

    @wraps(function)
    def command(*args: Any, **asked: Any) -> Any:
        from torchstone.records import TorchstoneError, UsageError

        try:
            return function(*args, **asked)
        except (click.ClickException, click.exceptions.Exit, click.Abort, UsageError):
            raise
        except TorchstoneError as error:
            error.exit_code = opt.Exit.NOT_RUN
            raise
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return opt.Exit.NOT_RUN
        except Exception:
            traceback.print_exc()
            return opt.Exit.NOT_RUN

    return cast("F", command)


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@opt.option(
    "--base",
    default="",
    metavar="REV",
    help="Compare with this revision (default: where the working copy left the main branch).",
)
@opt.option(
    "--new",
    default="",
    metavar="REV",
    help="Check this revision (default: the working copy, uncommitted changes included).",
)
@opt.option(
    "--suite",
    default="",
    metavar="FILE|SUITE",
    help="Also the targets of a suite file, or the quick models of an installed suite.",
)
@check_margin
@revision_options
@opt.option(
    "--on-unknown",
    default="",
    metavar="pass|fail",
    help="Exit code where it cannot be told: pass 0, fail 1 (default: 3).",
)
@opt.option(
    "--github",
    is_flag=True,
    help="In a GitHub workflow: annotations, the step summary and the step's outputs.",
)
@opt.option(
    "--from",
    "from_file",
    default="",
    metavar="FILE",
    help="Measure nothing: show the report in a file written by --json.",
)
@opt.database_option
@opt.output_options
@opt.save_option("Keep the results.")
@never_by_chance
def check(
    targets: tuple[str, ...],
    base: str,
    new: str,
    suite: str,
    on_unknown: str,
    github: bool,
    from_file: str,
    db: str | None,
    save: bool,
    output: opt.Output,
    **asked: Any,
) -> int:
    """Check whether a change makes anything slower, before it is merged.

    Both revisions are checked out beside the repository, built, and measured now, turn by turn, on
    this machine. Without TARGET: what `[tool.torchstone] check = [...]` in pyproject.toml lists,
    else what the pytest tests that use the torchstone fixture compare.

    \b
    Exit codes:
      0  not slower             1  slower, a wrong answer, or it fails now
      2  a mistake in the request
      3  cannot tell at this margin            4  could not run

    \b
    Examples:
      torchstone check benchmarks/model.py:make
      torchstone check --base v1.2 --new my-branch "pkg.bench:step()" --margin 5%
      torchstone check --build "pip install -q -t build ." --import-path build
      torchstone check --markdown > comment.md
      torchstone check --from check.json --markdown
    """
    from torchstone.lab.check import CheckRequest
    from torchstone.lab.check import check as run
    from torchstone.lab.recording import Recorder
    from torchstone.records import TorchstoneError
    from torchstone.show.check import annotation_lines, check_markdown

    if from_file:
        report, recorder = _read(from_file), None
    else:
        request = CheckRequest(targets, suite, base, new, on_unknown, how_to_run(asked))
        recorder = Recorder(db, saves=save)
        try:
            with opt.progress() as events:
                report = run(request, recorder, events)
        except TorchstoneError as error:
            if github:
                _tell_github_why(error)
            raise
    code = _code(report)
    _deliver(output, report, code)
    if github:
        _tell_github(annotation_lines(report), check_markdown(report, code), code)
    if recorder is not None:
        opt.print_storage_warnings(recorder, code)
    return code


def how_to_run(asked: dict[str, Any], until: str = "checked") -> HowToRun:
    """How targets are run, from the options that `check` and `bisect` share."""
    from torchstone.conductor import Settings
    from torchstone.lab.revisions import WITHIN, HowToRun

    settings = Settings(
        budget_s=asked.pop("budget"),
        within=min(WITHIN, asked["margin"] / 2),
        margin=asked.pop("margin"),
        seed=asked.pop("seed"),
        step_timeout_s=asked.pop("timeout"),
        build_timeout_s=asked.pop("build_timeout"),
        independent=asked.pop("independent"),
        until=until,
    )
    return HowToRun(settings=settings, **asked)


def _code(report: CheckReport) -> int:
    from torchstone.track.check import exit_code

    return opt.Exit.INTERRUPTED if report.interrupted else exit_code(report)


def _deliver(output: opt.Output, report: CheckReport, code: int) -> None:
    from torchstone.show.blocks import render
    from torchstone.show.check import check_dumps, check_markdown, check_report

    output.deliver(
        partial(render, check_report(report, code)),
        partial(check_dumps, report, code),
        partial(check_markdown, report, code),
    )


def _read(path: str) -> CheckReport:
    from torchstone.records import UsageError
    from torchstone.show.check import MOST_BYTES, check_loads

    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        return check_loads(data.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a report of `torchstone check --json`.") from None


def _tell_github_why(error: TorchstoneError) -> None:
    """That there is no report, and why: the step's outputs say so too."""
    from torchstone.records import UsageError
    from torchstone.show.check import annotation, not_run_markdown

    code = opt.Exit.USAGE if isinstance(error, UsageError) else opt.Exit.NOT_RUN
    _tell_github([annotation("error", str(error))], not_run_markdown(str(error)), code)


def _tell_github(annotations: Sequence[str], markdown: str, code: int) -> None:
    """Annotations on standard error, which GitHub reads too; the report may be in a file."""
    from torchstone.show.check import ANSWERS

    for line in annotations:
        click.echo(line, err=True)
    summary, outputs = os.environ.get("GITHUB_STEP_SUMMARY"), os.environ.get("GITHUB_OUTPUT")
    if summary:
        with open(summary, "ab") as file:
            file.write(markdown.encode()[:SUMMARY_LIMIT])
    if outputs:
        with open(outputs, "a", encoding="utf-8") as file:
            file.write(f"exit-code={int(code)}\nanswer={ANSWERS.get(code, '')}\n")


@click.command()
@click.argument("good")
@click.argument("bad")
@click.argument("target")
@opt.option(
    "--confidence",
    type=opt.SHARE,
    default="95%",
    help="Stop when a commit is this certain to be the one.",
)
@opt.option(
    "--most-probes", type=int, help="Commits measured at most, repeats included (default: enough)."
)
@opt.option("--restart", is_flag=True, help="Forget what an earlier search of these measured.")
@revision_options
@opt.database_option
@opt.output_options
@opt.save_option("Keep the results.")
@never_by_chance
def bisect(
    good: str,
    bad: str,
    target: str,
    confidence: float,
    most_probes: int | None,
    restart: bool,
    db: str | None,
    save: bool,
    output: opt.Output,
    **asked: Any,
) -> int:
    """Find the commit between GOOD and BAD that changed a target's time.

    Each probe measures a commit against GOOD, turn by turn; the sizes of the effects, not a
    threshold, say which commit it is and how sure that is. Commits that cannot be built or measured
    are passed over. The same command goes on where an interrupted one ended.

    \b
    Exit codes:
      0  a commit (or two, or a few neighbours) is named     1  the ends do not differ
      2  a mistake in the request     3  not certain enough     4  could not run

    \b
    Examples:
      torchstone bisect v1.2 main benchmarks/model.py:make
      torchstone bisect HEAD~50 HEAD "/tmp/bench.py:step()" --build "make -j4"
      torchstone bisect v1.2 main model.py:make --confidence 99% --json answer.json
    """
    from torchstone.lab.bisect import BisectRequest
    from torchstone.lab.bisect import bisect as run
    from torchstone.lab.recording import Recorder
    from torchstone.show.check import bisect_dumps, bisect_report

    how = how_to_run({**asked, "margin": 0.03}, until="precise")
    request = BisectRequest(good, bad, target, confidence, most_probes, restart, how)
    recorder = Recorder(db, saves=save)
    with opt.progress() as events:
        report = run(request, recorder, events)
    output.deliver_report(partial(bisect_report, report), partial(bisect_dumps, report))
    opt.print_storage_warnings(recorder, 0)
    if report.interrupted:
        return opt.Exit.INTERRUPTED
    if report.answer == "none":
        return opt.Exit.FAILED
    return opt.Exit.OK if report.answer else opt.Exit.UNKNOWN

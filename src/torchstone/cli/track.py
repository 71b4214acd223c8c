"""`torchstone compare`, `torchstone history` and `torchstone regressions`: what is stored."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.lab.regressions import SeriesRequest
    from torchstone.records import ChangeReport
    from torchstone.track import Terms


TOOLS = ("torchstone", "asv", "pyperf", "pytest-benchmark", "google-benchmark")

series_options = opt.options(
    opt.option(
        "--metric",
        "metrics",
        multiple=True,
        metavar="NAME",
        help="speedup, compiled, eager, compile, memory, or a column of `show --csv` (repeatable).",
    ),
    opt.option("--suite", default="", metavar="NAME", help="Only this suite or imported project."),
    opt.option(
        "--tool",
        default="",
        type=click.Choice(("", *TOOLS)),
        metavar="TOOL",
        help="Only series of this tool: torchstone, or one that was imported.",
    ),
    opt.option("--since", default="", metavar="DATE|AGE", help="Such as 2026-01-31, 30d or 8w."),
)
least_option = opt.option(
    "--least", type=opt.SHARE, default="3%", help="The least change of level that is told."
)


def _request(text: str, asked: dict[str, Any]) -> SeriesRequest:
    from torchstone.lab.regressions import SeriesRequest

    return SeriesRequest(text, asked["metrics"], asked["suite"], asked["tool"], asked["since"])


@click.command()
@click.argument("model", required=False, default="")
@series_options
@least_option
@opt.database_option
@opt.output_options
def history(model: str, least: float, db: str | None, output: opt.Output, **asked: Any) -> None:
    """Show stored figures over time, with the changes of their level.

    MODEL is a part of a case's name or of an imported benchmark's. Up to four series are drawn; of
    more, a table says how each went.

    \b
    Examples:
      torchstone history bert --metric compiled
      torchstone history
      torchstone history bench_ufunc --tool asv --since 2y
    """
    from torchstone.lab.regressions import history as load
    from torchstone.show.regressions import history_document, history_markdown, history_report
    from torchstone.track.regressions import changes_of

    lines = load(_request(model, asked), db)
    changes = changes_of(lines, least)
    output.deliver(
        partial(history_report, lines, changes),
        lambda: opt.dumps(history_document(lines, changes)),
        partial(history_markdown, lines, changes),
    )


@click.command()
@click.argument("text", required=False, default="", metavar="[NAME]")
@series_options
@least_option
@opt.option("--acknowledge", metavar="ID", help="Say that a change is known; it stays in the list.")
@opt.option("--mute", metavar="ID", help="Say nothing of a change; needs --reason and --until.")
@opt.option("--reopen", metavar="ID", help="Take an acknowledgement or a mute back.")
@opt.option("--confirm", metavar="ID", help="Measure both commits again, interleaved.")
@opt.option("--reason", default="", help="Why; shown with the change.")
@opt.option("--until", default="", metavar="DATE|AGE", help="When a mute ends: 2026-12-31, or 30d.")
@opt.option("--all", "everything", is_flag=True, help="Show every change, not the largest 20.")
@opt.option(
    "--format",
    "form",
    type=click.Choice(("text", "markdown", "json", "github-issue")),
    default="text",
)
@opt.option(
    "--fail-on-open",
    is_flag=True,
    help="Exit code 1 if a regression of the code is open, or data is missing.",
)
@opt.database_option
@opt.json_option
def regressions(
    text: str,
    least: float,
    reason: str,
    until: str,
    everything: bool,
    form: str,
    fail_on_open: bool,
    db: str | None,
    output: opt.Output,
    **asked: Any,
) -> int:
    """List changes of level over the stored history: since which commit, how large, whose doing.

    The rate of false alarms is calibrated on this database's own series and printed. Changes that
    a later one took back are closed. A change is one entry: where compiled alone moved, its
    speed-up; where eager did, eager. Data that should be there and is not comes first.

    \b
    Examples:
      torchstone regressions --since 30d
      torchstone regressions bert --metric compiled --least 5%
      torchstone regressions --tool asv --format markdown
      torchstone regressions --mute 3fa2c1d0 --until 30d --reason "known: issue 123"
      torchstone regressions --confirm 3fa2c1d0
    """
    from torchstone.lab.regressions import regressions as look

    report = look(_request(text, asked), db, least)
    done = _act(report, asked, reason, until, db)
    if done:
        click.echo(done)
        return opt.Exit.OK
    _deliver(report, output, form, everything)
    wanted = [*report.of_state("open"), *report.of_state("confirmed")]
    bad = any(not one.machine for one in wanted) or report.missing
    return opt.Exit.FAILED if fail_on_open and bad else opt.Exit.OK


def _act(
    report: ChangeReport, asked: dict[str, Any], reason: str, until: str, db: str | None
) -> str:
    """Do what was asked about one change; what was done, or nothing."""
    from torchstone.lab.regressions import find_change, mute_end, note_change
    from torchstone.records import UsageError
    from torchstone.show.table import sanitise

    wanted = {
        name: asked[name] for name in ("acknowledge", "mute", "reopen", "confirm") if asked[name]
    }
    if not wanted:
        return ""
    if len(wanted) > 1:
        raise UsageError("One thing at a time.", f"Give one of --{', --'.join(wanted)}.")
    ((action, ident),) = wanted.items()
    change = find_change(report, ident)
    if action == "confirm":
        from torchstone.lab.check import confirm

        done = confirm(change, db)
        return f"{done.id}: {done.state}; {sanitise(done.reason)}"
    if action == "mute" and not reason:
        raise UsageError("A mute needs a reason.", 'Add --reason "...".')
    ends = mute_end(until) if action == "mute" else ""
    stored = {"acknowledge": "acknowledged", "mute": "muted", "reopen": "reopened"}[action]
    note_change(change, stored, reason, ends, db)
    return f"{change.id}: {stored}" + (f" until {ends}" if ends else "")


def _deliver(report: ChangeReport, output: opt.Output, form: str, everything: bool) -> None:
    from torchstone.show.blocks import to_markdown
    from torchstone.show.regressions import issue_text, regressions_document, regressions_report

    made = partial(regressions_report, report, everything=everything)

    def document() -> str:
        return opt.dumps(regressions_document(report))

    if form == "json":
        click.echo(document())
    elif form == "markdown":
        click.echo(to_markdown(made()), nl=False)
    elif form == "github-issue":
        click.echo(issue_text(report), nl=False)
    else:
        output.deliver_report(made, document)


def _parse_variants(text: str) -> tuple[str, str]:
    """The base run's variant and the new run's."""
    base, equals, new = text.partition("=")
    if not base or (equals and not new):
        raise ValueError("write VARIANT, or BASE=NEW")
    return base, new or base


@click.command()
@click.argument("base")
@click.argument("new")
@opt.option(
    "--suite",
    default="",
    metavar="NAME",
    help="Only cases of this suite. (Verdicts are always given over whole suites.)",
)
@opt.option("--mode", default="", metavar="MODE", help="Only inference, or only training.")
@opt.option("--precision", default="", metavar="NAME", help="Only cases of this precision.")
@opt.option(
    "--variant",
    "variants",
    type=opt.Parsed("base[=new]", _parse_variants),
    metavar="BASE[=NEW]",
    help="Only this variant; with =NEW, that one of the new run instead.",
)
@opt.margin_option
@opt.option("--only-common", is_flag=True, help="Leave out cases that one run alone has.")
@opt.option(
    "--across",
    type=opt.WORDS,
    default=(),
    help="What may differ: machines, threads, devices, methods. (Torch may, and is marked.)",
)
@opt.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(("slower", "maybe-slower", "fail")),
    help="Exit code 1 if a case or a suite is slower; if one is not shown to be no slower; if a "
    "case newly fails (repeatable).",
)
@opt.option("--all", "everything", is_flag=True, help="Show every paired case.")
@opt.database_option
@opt.csv_options
def compare(
    base: str,
    new: str,
    fail_on: tuple[str, ...],
    everything: bool,
    db: str | None,
    output: opt.Output,
    **asked: Any,
) -> int:
    """Compare two stored runs, case by case.

    BASE and NEW are each a run's id (or its beginning), a label, a commit, a branch, a torch
    version, a machine, a JSON file of a run, `latest`, or `latest~1` for the one before. Anything
    but a run means its newest run. Where a word means several things, say which: run:, label:,
    commit:, branch:, torch:, machine:, file:.

    \b
    Examples:
      torchstone compare latest~1 latest
      torchstone compare main my-branch --fail-on slower --fail-on fail --markdown
      torchstone compare torch:2.12 torch:2.13 --suite timm
      torchstone compare latest latest --variant inductor=aot_eager
      torchstone compare base.json new.json --json -
    """
    from torchstone.lab.compare_runs import compare_runs, gate
    from torchstone.records import UsageError
    from torchstone.show.comparison import compare_report
    from torchstone.show.run_data import compare_csv, compare_dumps

    comparison = compare_runs(base, new, db, _terms(asked))
    if comparison.refused:
        raise UsageError(comparison.refused, comparison.remedy)
    output.deliver_report(
        partial(compare_report, comparison, everything=everything),
        partial(compare_dumps, comparison),
        partial(compare_csv, comparison),
    )
    return opt.Exit.FAILED if gate(comparison, fail_on) else opt.Exit.OK


def _terms(asked: dict[str, Any]) -> Terms:
    from torchstone.records import Selection
    from torchstone.stats import Rules
    from torchstone.track import Terms

    return Terms(
        selection=Selection(suite=asked["suite"], mode=asked["mode"], precision=asked["precision"]),
        variants=asked["variants"],
        across=frozenset(asked["across"]),
        only_common=asked["only_common"],
        rules=Rules(margin=asked["margin"]),
    )

"""`torchstone compare`: two stored runs set against each other."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.options import (
    Share,
    check_json_path,
    database_option,
    output_options,
    use_color,
    width,
)
from torchstone.cli.run import Words

if TYPE_CHECKING:
    from torchstone.records import RunComparison
    from torchstone.track import Terms

STDOUT = "-"


class Variants(click.ParamType):  # type: ignore[type-arg]
    """`inductor`, or `inductor=aot_eager` for two that are to be paired."""

    name = "base[=new]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The base run's variant and the new run's."""
        if isinstance(value, tuple):
            return value[0], value[1]
        base, equals, new = str(value).partition("=")
        if not base or (equals and not new):
            self.fail("write VARIANT, or BASE=NEW", param, ctx)
        return base, new or base


@click.command()
@click.argument("base")
@click.argument("new")
@click.option(
    "--suite",
    default="",
    metavar="NAME",
    help="Only cases of this suite. (Verdicts are always given over whole suites.)",
)
@click.option("--mode", default="", metavar="MODE", help="Only inference, or only training.")
@click.option("--precision", default="", metavar="NAME", help="Only cases of this precision.")
@click.option(
    "--variant",
    "variants",
    type=Variants(),
    metavar="BASE[=NEW]",
    help="Only this variant; with =NEW, that one of the new run instead.",
)
@click.option(
    "--margin",
    type=Share(),
    default="2%",
    show_default=True,
    help="Smallest ratio that counts as a change; also what `not slower` excludes.",
)
@click.option("--only-common", is_flag=True, help="Leave out cases that one run alone has.")
@click.option(
    "--across",
    type=Words(),
    default=(),
    help="What may differ: machines, threads, devices, methods. (Torch may, and is marked.)",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(("slower", "maybe-slower", "fail")),
    help="Exit code 1 if a case or a suite is slower; if one is not shown to be no slower; if a "
    "case newly fails (repeatable).",
)
@click.option("--all", "everything", is_flag=True, help="Show every paired case.")
@click.option("--csv", "csv_path", metavar="PATH|-", help="Write CSV to a file; - prints it alone.")
@database_option
@output_options
def compare(
    base: str,
    new: str,
    fail_on: tuple[str, ...],
    everything: bool,
    csv_path: str | None,
    db: str | None,
    json_path: str | None,
    markdown: bool,
    **asked: Any,
) -> int:
    """Set two stored runs against each other, case by case.

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

    for path in (json_path, csv_path):
        check_json_path(path)
    if json_path == csv_path == STDOUT:
        raise UsageError("JSON and CSV cannot both be printed.", "Write one of them to a file.")
    comparison = compare_runs(base, new, db, _terms(asked))
    if comparison.refused:
        raise UsageError(comparison.refused, comparison.remedy)
    _deliver(comparison, json_path, csv_path, markdown, everything)
    return int(gate(comparison, fail_on))


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


def _deliver(
    comparison: RunComparison,
    json_path: str | None,
    csv_path: str | None,
    markdown: bool,
    everything: bool,
) -> None:
    """Files first; then what was asked to be printed alone, or the report."""
    from torchstone import show
    from torchstone.lab.output_files import write_file

    printed = False
    for path, write in ((json_path, show.compare_dumps), (csv_path, show.compare_csv)):
        if path is None:
            continue
        text = write(comparison)
        text = text if text.endswith("\n") else f"{text}\n"
        if path == STDOUT:
            click.echo(text, nl=False)
            printed = True
        else:
            write_file(path, text)
    if printed:
        return
    if markdown:
        click.echo(show.compare_markdown(comparison, everything=everything), nl=False)
        return
    text = show.compare_report(
        comparison,
        color=use_color(),
        width=width(),
        unicode=show.can_unicode(sys.stdout),
        everything=everything,
    )
    click.echo(text, nl=False, color=True)

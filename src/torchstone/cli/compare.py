"""`torchstone compare`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.track import Terms


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

"""`show`, `list`, `repro` and `validate`: what is stored, and what there is to run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.lab.database import Reevaluated
    from torchstone.lab.repro import Reproduction
    from torchstone.records import Ledger, Profile, Result, RunView, Tuning
    from torchstone.records.scaling import Scaling
    from torchstone.show.listing import ModelRow, SuiteRow, TechniqueRow, VariantRow
    from torchstone.store import Store
    from torchstone.workloads.suites import ModelInfo, Suite

    Stored = Result | RunView | Profile | Ledger | Tuning | Scaling


WHAT = (
    *("results", "runs", "profiles", "ledgers", "tunings", "scalings"),
    *("suites", "models", "variants", "techniques"),
)


@click.command()
@click.argument("id")
@click.argument("other", required=False)
@opt.option("--commands", is_flag=True, help="Show the command that re-runs each case of a run.")
@opt.option("--view", is_flag=True, help="Of a profile: write an HTML page to look at it.")
@opt.option(
    "--out",
    metavar="FILE",
    help="Of a profile: write it; the ending says the format. Of a sweep: its picture (.svg).",
)
@opt.database_option
@opt.shown_options
def show(
    id: str,
    other: str | None,
    commands: bool,
    view: bool,
    out: str | None,
    db: str | None,
    output: opt.Output,
) -> None:
    """Show a stored result, run, profile, ledger, tuning or scaling, or a profile's file.

    ID may be shortened as long as it is unique; a run may also be named by its label; `last` is
    the newest of all. The name of a file stands for the profile in it: ours, or one of cProfile,
    py-spy, speedscope, torch.profiler and others; a page to look at it is written beside it. With
    OTHER, both are profiles, and the page shows what grew and what shrank from ID to OTHER.

    \b
    Examples:
      torchstone show last
      torchstone show 1jz3k --markdown
      torchstone show nightly-0412 --csv > nightly.csv
      torchstone show last --json -
      torchstone show train.prof
      torchstone show before.prof after.prof
    """
    from torchstone.records import Profile, Result, RunView, UsageError
    from torchstone.store import open_store

    if other is not None or os.path.isfile(id):
        from torchstone.cli.profile import show_profiles

        show_profiles(output, [id, other] if other is not None else [id], out, view, db)
        return
    drawn = out is not None and out.lower().endswith(".svg")
    every_case = commands or output.json_path is not None or output.csv_path is not None
    with open_store(db, create=False, read_only=True) as store, store.snapshot():
        found = _find(store, id, view or (out is not None and not drawn), every_case)
        if isinstance(found, RunView):
            from torchstone.cli.run import deliver_run

            deliver_run(output, found, commands, db)
            return
    if drawn and isinstance(found, Result):
        _draw(out, found)
    if isinstance(found, Profile):
        from torchstone.cli.profile import show_profile

        show_profile(output, found, out, view)
        return
    if output.csv_path:
        raise UsageError(f"{id} is not a run; --csv is for runs.", "Use --json or --markdown.")
    _deliver(output, found, db)


def _deliver(output: opt.Output, found: Result | Ledger | Tuning | Scaling, db: str | None) -> None:
    from torchstone.records import Ledger, Tuning
    from torchstone.records.scaling import Scaling

    if isinstance(found, Ledger):
        from torchstone.cli.explain import deliver_ledger

        deliver_ledger(output, found)
    elif isinstance(found, Tuning):
        from torchstone.cli.explain import deliver_tuning

        deliver_tuning(output, found, db)
    elif isinstance(found, Scaling):
        from torchstone.cli.scaling import deliver_scaling

        deliver_scaling(output, found)
    else:
        opt.deliver_result(output, found, saved=True, db=db)


def _draw(out: str | None, result: Result) -> None:
    from torchstone.lab.sweep import write_picture

    write_picture(out, result)


def _find(store: Store, name: str, profile: bool, every_case: bool) -> Stored:
    """A result or a run, else a profile, a ledger, a tuning or a scaling; or only a profile. Of a
    run too large for a report, the cases in brief, unless every one is wanted."""
    from torchstone.records import UsageError
    from torchstone.show.run import MOST_CASES
    from torchstone.store.limits import LAST

    if profile:
        return store.load_profile(name)
    try:
        found = store.find(name, None if every_case else MOST_CASES)
        return _newer(store, found) if name == LAST else found
    except UsageError as error:
        for load in (
            store.load_profile,
            store.load_ledger,
            store.load_tuning,
            store.load_scaling,
        ):
            try:
                return load(name)
            except UsageError:
                continue
        raise error


def _newer(store: Store, found: Result | RunView) -> Stored:
    """The newest of all: this, or the last profile, ledger, tuning or scaling."""
    from torchstone.records import RunView
    from torchstone.store.limits import seconds_of

    created = found.run.created if isinstance(found, RunView) else found.created
    newest: tuple[float, Any] = (seconds_of(created) or 0.0, lambda _: found)
    for listed, load in (
        (store.list_profiles(1), store.load_profile),
        (store.list_ledgers(1), store.load_ledger),
        (store.list_tunings(1), store.load_tuning),
        (store.list_scalings(1), store.load_scaling),
    ):
        for one in listed:
            newest = max(newest, (seconds_of(one.created) or 0.0, load), key=lambda pair: pair[0])
    made: Stored = newest[1]("last")
    return made


@click.command("list")
@click.argument("what", type=click.Choice(WHAT), default="results", metavar="[WHAT]")
@click.argument("suite", required=False)
@opt.option("-n", "--limit", type=click.IntRange(1), default=20)
@opt.option("--arm", help="Only results with an arm of this name.")
@opt.option("--since", metavar="DATE", help="Only results made at or after this (ISO 8601).")
@opt.database_option
@opt.json_flag
def list_results(
    what: str,
    suite: str | None,
    limit: int,
    arm: str | None,
    since: str | None,
    db: str | None,
    output: opt.Output,
) -> None:
    """List what is stored, newest first; or suites, models, variants and techniques.

    WHAT is results (the default), runs, profiles, ledgers, tunings, scalings, suites, models,
    variants or techniques (what `torchstone tune` can try here, and why not). `list models SUITE`
    lists one suite.

    \b
    Examples:
      torchstone list
      torchstone list --arm inductor --since 2026-01-01
      torchstone list runs
      torchstone list suites
      torchstone list models timm
    """
    from torchstone.records import to_data
    from torchstone.show.listing import listing
    from torchstone.store import open_store

    rows: Sequence[Any]
    if what == "suites":
        rows = _suite_rows(suite)
    elif what == "models":
        rows = _model_rows(suite)
    elif what == "variants":
        rows = _variant_rows()
    elif what == "techniques":
        rows = _technique_rows()
    else:
        with open_store(db, create=False, read_only=True) as store:
            lists: dict[str, Callable[[int], Sequence[Any]]] = {
                "runs": store.list_runs,
                "profiles": store.list_profiles,
                "ledgers": store.list_ledgers,
                "tunings": store.list_tunings,
                "scalings": store.list_scalings,
            }
            newest = lists.get(what, partial(store.list, arm=arm, since=since))
            rows = newest(limit)
            if what == "results" and not rows and output.json_path is None:
                what, rows = _other_kind(lists)
    document = {"schema": 1, what: [to_data(row) for row in rows]}
    output.deliver(partial(listing, what, rows), partial(opt.dumps, document))


def _other_kind(lists: Mapping[str, Callable[[int], Sequence[Any]]]) -> tuple[str, Sequence[Any]]:
    """Where there is no result: runs (imported ones have none), profiles or ledgers."""
    for kind, newest in lists.items():
        if rows := newest(20):
            return kind, rows
    return "results", ()


def _suites(name: str | None) -> tuple[list[tuple[Suite, list[ModelInfo]]], dict[str, str]]:
    """The suites with their models, of one name or all; and why others have none, by prefix."""
    from torchstone.lab.run_plan import find_any_suite
    from torchstone.records import UsageError
    from torchstone.workloads.suites import load_suites

    if name:
        suite = find_any_suite(name)
        return [(suite, list(suite.models()))], {}
    suites, without = load_suites()
    found = []
    for prefix, suite in suites.items():
        try:
            found.append((suite, list(suite.models())))
        except UsageError as error:  # no checkout, say
            without[prefix] = f"{error.message} {error.remedy}"
    return found, without


def _suite_rows(name: str | None) -> list[SuiteRow]:
    from torchstone.show.listing import SuiteRow

    found, without = _suites(name)
    rows = [SuiteRow(prefix, prefix, 0, 0, reason=why) for prefix, why in without.items()]
    for suite, models in found:
        missing = [info.missing for info in models if info.missing]
        runnable, reason = len(models) - len(missing), _commonest(missing, suite.name)
        rows.append(SuiteRow(suite.name, suite.prefix, len(models), runnable, suite.scales, reason))
    return sorted(rows, key=lambda row: row.prefix)


def _commonest(reasons: list[str], suite: str) -> str:
    """The reason that most models have, and where the others are told."""
    if not reasons:
        return ""
    reason, count = Counter(reasons).most_common(1)[0]
    if count == len(reasons):
        return reason
    return f"{reason} ({count} of {len(reasons)}; the others: `torchstone list models {suite}`)"


def _model_rows(suite: str | None) -> list[ModelRow]:
    from torchstone.show.listing import ModelRow

    found, without = _suites(suite)
    for why in without.values():
        click.echo(f"note: {why}", err=True)
    return [
        ModelRow(one.name, info.name, info.family, info.tier, info.modes, info.missing)
        for one, models in found
        for info in models
    ]


OURS = "torchstone"
"""The package of variants that come with us."""


def _variant_rows() -> list[VariantRow]:
    from torchstone.lab.request import torch_backends
    from torchstone.records import UsageError
    from torchstone.show.listing import VariantRow
    from torchstone.variants import known_variants, resolve_variant
    from torchstone.variants.registry import NOT_FOR_USERS
    from torchstone.variants.techniques import TECHNIQUES

    known = known_variants()
    rows = []
    for name, point in sorted(known.items()):
        source = point.dist.name if point.dist else OURS
        try:
            summary = str(getattr(resolve_variant(name), "summary", "")) or f"of {source}"
        except (ImportError, AttributeError, UsageError) as error:  # costs the others nothing
            summary = f"cannot be loaded: {error}"
        rows.append(VariantRow(name, source, summary))
    rows += [
        VariantRow(f"+{one.name}", TECHNIQUES.source(one.name), one.summary)
        for one in TECHNIQUES.values()
        if one.modifier
    ]
    for name in torch_backends(None):
        if name not in known and not name.endswith(NOT_FOR_USERS):
            rows.append(VariantRow(name, "torch.compile"))
    return rows


def _technique_rows() -> list[TechniqueRow]:
    """What can be tried here: of an arm on the CPU in a mode that the technique is for."""
    from importlib import metadata

    from torchstone.records import ArmSpec
    from torchstone.show.listing import TechniqueRow
    from torchstone.variants.techniques import TECHNIQUES

    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = ""
    rows = []
    for name in TECHNIQUES:
        try:
            one = TECHNIQUES[name]
        except Exception as error:  # a package of somebody else's; it costs the others nothing
            said = f"it cannot be loaded: {error}"
            rows.append(TechniqueRow(name, TECHNIQUES.source(name), missing=said))
            continue
        missing = one.why_not(ArmSpec("", mode=one.modes[0]), torch)
        if not torch and one.needs_torch:
            missing = "torch is not installed here"
        inputs = (*one.inputs, *one.conditions)
        row = TechniqueRow(name, TECHNIQUES.source(name), one.tier, one.modes, one.summary)
        rows.append(replace(row, may_break=one.may_break, inputs=inputs, missing=missing))
    return rows


# `torchstone repro`.


@click.command()
@click.argument("id")
@opt.option("--trust", is_flag=True, help="Run a record that came from elsewhere.")
@opt.option("--recipe", metavar="DIR", help="Write a lock file and a Containerfile; run nothing.")
@opt.option("--force", is_flag=True, help="With --recipe: replace files that are there.")
@opt.option("--budget", type=opt.DURATION, help="Another budget than the stored one.")
@opt.database_option
@opt.output_options
@opt.save_option("Keep the new result.")
def repro(
    id: str,
    trust: bool,
    recipe: str | None,
    force: bool,
    budget: float | None,
    db: str | None,
    output: opt.Output,
    save: bool,
) -> int:
    """Measure a stored result again; compare with the old.

    \b
    Examples:
      torchstone repro last
      torchstone repro 1jz3k --budget 60s
      torchstone repro 1jz3k --recipe rebuild/
    """
    from torchstone.lab.recording import Recorder
    from torchstone.lab.repro import repro as again
    from torchstone.lab.repro import write_recipe
    from torchstone.store import open_store

    with open_store(db, create=False, read_only=True) as store:
        stored = store.load(id)
    if recipe is not None:
        for path in write_recipe(stored, recipe, trust=trust, force=force):
            click.echo(f"wrote {path}")
        return opt.Exit.OK
    recorder = Recorder(db, saves=save)
    with opt.progress() as events:
        done = again(stored, trust=trust, recorder=recorder, events=events, budget_s=budget)
    result = done.combined if output.json_path else done.new
    opt.deliver_result(output, result, saved=recorder.has_kept, db=db)
    if not output.alone:
        click.echo("\n".join(_against(stored, done)))
    return opt.print_storage_warnings(recorder, opt.exit_code(done.new))


def _against(stored: Result, done: Reproduction) -> list[str]:
    """The new result against the old. What is not as it was comes before any ratio: it may be what
    a difference comes from."""
    from torchstone.lab.repro import BETWEEN_SESSIONS
    from torchstone.records.format import format_ratio
    from torchstone.show.table import sanitise

    lines = [f"\nagainst {stored.id} of {stored.created}:"]
    if stored.pruned:
        lines.append(
            f"  its samples were removed on {stored.pruned.created[:10]}, so only its "
            f"figures can be compared: torchstone show {stored.id}"
        )
    for change in done.changes:
        some = len(change.arms) < len(done.new.arms)
        arms = f"{', '.join(change.arms)}: " if some else ""
        lines.append(f"  not as it was: {sanitise(arms + change.sentence)}")
    for one in (*done.speedups, *done.against_stored):
        ratio = format_ratio(one.time_ratio) if one.time_ratio else "-"
        span = f" [{one.interval[0]:.3f}, {one.interval[1]:.3f}]" if one.interval else ""
        why = f" ({sanitise(one.reason)})" if one.time_ratio is None and one.reason else ""
        lines.append(f"  {sanitise(one.new)}: time ratio {ratio}{span}: {one.verdict.value}{why}")
    return lines + ([f"  {BETWEEN_SESSIONS}"] if done.against_stored else [])


# `torchstone validate`.


@click.command()
@click.argument("id", metavar="ID|RUN")
@opt.save_option("Keep the new evaluation.")
@opt.option("--strict", is_flag=True, help="Exit code 1 if a number is not to be believed.")
@opt.database_option
@opt.json_option
def validate(id: str, save: bool, strict: bool, db: str | None, output: opt.Output) -> int:
    """Re-run the checks on stored results, without measuring.

    ID is a result, or a run (all of its results). Samples never change; what the rules say of them
    now is kept beside them and shown from then on.

    \b
    Examples:
      torchstone validate last
      torchstone validate nightly-0412 --strict
      torchstone validate 1jz3k --no-save --json -
    """
    from torchstone.lab.database import validate_stored
    from torchstone.show.evidence import evaluation_report

    evaluated = validate_stored(id, db, save=save)
    output.deliver(
        partial(evaluation_report, [(one.after, one.changes) for one in evaluated]),
        lambda: opt.dumps(_document(evaluated)),
    )
    skipped = sum(one.skipped for one in evaluated)
    if skipped:
        click.echo(
            f"note: {skipped} of {len(evaluated)} results keep their earlier checks: their samples "
            "were removed (`torchstone db prune`)",
            err=True,
        )
    return opt.Exit.FAILED if strict and any(one.failed for one in evaluated) else opt.Exit.OK


def _document(evaluated: list[Reevaluated]) -> dict[str, object]:
    from torchstone.show.markdown import document

    return {
        "schema": 1,
        "results": [
            {"changes": list(one.changes), "failed": one.failed, "result": document(one.after)}
            for one in evaluated
        ],
    }

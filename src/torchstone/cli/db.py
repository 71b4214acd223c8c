"""`torchstone db`: size, prune, rebuild, copy.

`torchstone serve`: the dashboard, which is loaded as a plug-in is: commands do not import it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli import options as opt

if TYPE_CHECKING:
    from torchstone.store import PruneReport, SizeReport


SERVER = "torchstone.web.serving:serve"
EXPORT_SITE = "torchstone.web.site:export_site"
REPOSITORY = "Where commits are linked to (default: the run's own remote)."


@click.command()
@opt.option("--host", default="127.0.0.1", help="Address to listen on.")
@opt.option("--port", type=click.IntRange(0, 65535), default=8484)
@opt.option("--public", is_flag=True, help="Allow a --host that others can reach.")
@opt.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="A host name by which others call this machine; may be given again.",
)
@opt.option("--repository", default="", metavar="URL", help=REPOSITORY)
@opt.option("--accept-pushes", is_flag=True, help="Take runs from `torchstone push`, by token.")
@opt.option("--open", "open_browser", is_flag=True, help="Open a browser.")
@opt.database_option
def serve(**asked: Any) -> int:
    """Show stored runs as a dashboard in the browser. It only reads.

    With --accept-pushes it also takes whole runs, from those who have a token (`torchstone token`).

    \b
    Examples:
      torchstone serve
      torchstone serve --db nightly.db --port 9000 --open
      torchstone serve --host 0.0.0.0 --public --name lab.example
      torchstone serve --db lab.db --accept-pushes
    """
    return int(load(SERVER)(click.echo, **asked))


def load(value: str) -> Any:
    """The function `module:name` of the dashboard; a sentence where its libraries are missing."""
    from importlib.metadata import EntryPoint

    from torchstone.records import UsageError

    try:
        return EntryPoint("", value, "").load()
    except ModuleNotFoundError as error:
        raise UsageError(
            f"The dashboard needs {error.name}, which is not installed.",
            "Install it: pip install 'torchstone[web]'.",
        ) from None


_MANY = 2000
"""Cases from which on half-empty pages (4 KiB, two dozen tables and indexes) weigh little."""
_AGES = {"d": 86_400.0, "w": 7 * 86_400.0, "y": 365.25 * 86_400.0}


def _parse_age(text: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([dwy])\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not an age; write 90d, 12w or 2y")
    return float(match[1]) * _AGES[match[2]]


@click.group()
def db() -> None:
    """Look after the database: its size, its old samples, its derived tables, a copy.

    \b
    Examples:
      torchstone db size
      torchstone db prune --older-than 90d --dry-run
      torchstone db rebuild
      torchstone db copy nightly.db postgresql+psycopg://bench@db.example/torchstone
    """


@db.command("size")
@opt.database_option
@opt.json_flag
def db_size(db: str | None, output: opt.Output) -> None:
    """Say what is on disk, by table, and what a case costs.

    \b
    Examples:
      torchstone db size
      torchstone db size --json
    """
    from torchstone.lab.database import size

    report = size(db)
    opt.deliver_lines(output, _size_lines(report), lambda: _size_document(report))


@db.command("prune")
@opt.option(
    "--older-than",
    type=opt.Parsed("age", _parse_age),
    required=True,
    metavar="AGE",
    help="Such as 90d, 12w or 2y.",
)
@opt.option(
    "--keep-every",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Let one run in N of each machine and branch keep its samples; 0: none.",
)
@opt.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
@opt.option("--compact", is_flag=True, help="Also make the file smaller (needs as much space).")
@opt.database_option
@opt.json_flag
def db_prune(
    older_than: float,
    keep_every: int,
    dry_run: bool,
    compact: bool,
    db: str | None,
    output: opt.Output,
) -> None:
    """Remove the raw samples of old results that belong to runs.

    Figures, comparisons, checks, contracts and environments stay. Each result says from then on
    that its samples were removed, when and by which command. It cannot be undone: copy the database
    first if you may want them again.

    \b
    Examples:
      torchstone db prune --older-than 90d --dry-run
      torchstone db prune --older-than 90d --keep-every 7
      torchstone db prune --older-than 1y --compact
    """
    from torchstone.lab.database import prune
    from torchstone.records import to_data

    command = ["torchstone", "db", "prune", "--older-than", f"{older_than / _AGES['d']:g}d"]
    if keep_every:
        command += ["--keep-every", str(keep_every)]
    with _counting() as tell:
        report, shrunk = prune(
            db, older_than, keep_every, command, tell, trial=dry_run, compact=compact
        )
    opt.deliver_lines(
        output,
        _prune_lines(report, shrunk, compact),
        lambda: {"schema": 1, **to_data(report), "file_shrunk_by": shrunk},
    )


@db.command("rebuild")
@opt.option(
    "--all", "every", is_flag=True, help="Also derive every case's figures from its samples; slow."
)
@opt.database_option
@opt.json_flag
def db_rebuild(every: bool, db: str | None, output: opt.Output) -> None:
    """Make the derived tables again: those that lists, pages and comparisons read.

    Needed after an upgrade that says so, or if a page and `torchstone show` disagree. Figures that
    were derived by an older definition are derived again where their samples are there. Stop it at
    any time and start it again.

    \b
    Examples:
      torchstone db rebuild
      torchstone db rebuild --all
    """
    from torchstone.lab.database import rebuild
    from torchstone.records import to_data
    from torchstone.records.format import count

    with _counting() as tell:
        made = rebuild(db, tell, every=every)
    line = f"{count(made.runs, 'run')} summed up again, {count(made.figures, 'case')} derived"
    if made.summaries:
        line += f", {count(made.summaries, 'line')} of `torchstone list` rewritten"
    lines = [line]
    if made.older:
        cases = count(made.older, "case")
        lines.append(f"{cases} without samples: figures of an older definition stay as they are")
    opt.deliver_lines(output, lines, lambda: {"schema": 1, **to_data(made)})


@db.command("copy")
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@opt.json_flag
def db_copy(source: str, target: str, output: opt.Output) -> None:
    """Copy a whole database into an empty one: from SQLite to PostgreSQL, or the other way.

    Whole or not at all. Programs may go on writing to SRC; what they add meanwhile is not copied.

    \b
    Examples:
      torchstone db copy nightly.db postgresql+psycopg://bench@db.example/torchstone
      torchstone db copy postgresql+psycopg://bench@db.example/torchstone backup.db
    """
    from torchstone.lab.database import copy_database
    from torchstone.records import to_data
    from torchstone.records.format import count
    from torchstone.store.location import locate

    with _counting() as tell:
        report = copy_database(source, target, tell)
    rows = report.tables
    lines = [
        f"{locate(target)}: {count(rows['run'], 'run')}, {count(rows['run_case'], 'case')}, "
        f"{count(rows['result'], 'result')}, {count(report.files, 'profile')}",
        *(f"missing in the source: the profile file {one}" for one in report.missing_files),
    ]
    opt.deliver_lines(output, lines, lambda: {"schema": 1, **to_data(report)})


@contextmanager
def _counting() -> Iterator[Callable[[str, int, int], None]]:
    """Progress of what counts its steps."""
    with opt.progress() as events:
        yield lambda what, done, total: events.update(
            done / total if total else 1.0, f"{what}: {done}/{total}"
        )


def _size_document(report: SizeReport) -> dict[str, Any]:
    from torchstone.records import to_data

    data: dict[str, Any] = {"schema": 1, **to_data(report)}
    for name in ("whole", "pruned"):
        data[name]["per_case"] = getattr(report, name).per_case
    return data


def _size_lines(report: SizeReport) -> list[str]:
    from torchstone.records.format import count, format_bytes

    lines = [
        f"{report.path}: {format_bytes(report.file_bytes)}, of which "
        f"{format_bytes(report.free_bytes)} free; files beside it: "
        f"{format_bytes(report.artefact_bytes)}",
        f"{count(report.runs, 'run')}, {count(report.cases, 'case')}",
    ]
    if report.facts_per_case is not None:
        figures = "its figures"
        if report.cases < _MANY:
            figures += " (mostly pages that are not full yet)"
        lines += ["", "a case takes", f"  {format_bytes(report.facts_per_case):>10}  {figures}"]
    parts = (
        (report.whole, "more with its result and all samples"),
        (report.pruned, "more with a result whose samples were removed"),
    )
    lines += [
        f"  {format_bytes(part.per_case):>10}  {words} ({count(part.results, 'result')})"
        for part, words in parts
        if part.per_case is not None
    ]
    width = max(len(table.name) for table in report.tables)
    lines += ["", f"{'table':<{width}}  {'rows':>10}  {'on disk':>10}  {'a case':>10}"]
    for table in sorted(report.tables, key=lambda one: -(one.bytes or 0)):
        disk, each = format_bytes(table.bytes), format_bytes(table.per_case)
        lines.append(f"{table.name:<{width}}  {table.rows:>10,}  {disk:>10}  {each:>10}")
    return lines


def _prune_lines(report: PruneReport, shrunk: int, compact: bool) -> list[str]:
    from torchstone.records.format import count, format_bytes

    what = f"{count(report.results, 'result')} of {count(report.runs, 'run')}"
    if not report.results:
        lines = ["nothing to remove: no result that old has samples"]
    elif report.trial:
        lines = [f"would remove the samples of {what}: at least {format_bytes(report.bytes)}"]
    else:
        lines = [
            f"removed {count(report.samples, 'sample')} from {what}: "
            f"{format_bytes(report.bytes)} free for what comes next"
        ]
    if report.kept_runs:
        lines.append(f"{count(report.kept_runs, 'older run')} keep their samples")
    lines += [f"left as it is, because it is damaged: {one}" for one in report.damaged]
    if compact and not report.trial:
        lines.append(f"the file is smaller by {format_bytes(shrunk)}")
    return lines


# `torchstone export` and `torchstone import`: other tools' files.


SITE = "site"


@click.command("export")
@click.argument("run", metavar="RUN|FOLDER")
@opt.option("--format", "format_name", required=True, metavar="hud-v3|dynamo-csv|site")
@opt.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=".",
    help="Folder for the files; made if it is not there.",
)
@opt.option("--force", is_flag=True, help="Replace files that exist.")
@opt.option("--nights", type=click.IntRange(1), default=14, help="Of a site: days of history.")
@opt.option("--no-evidence", is_flag=True, help="Of a site: no samples, checks or profiles.")
@opt.option("--repository", default="", metavar="URL", help=REPOSITORY)
@opt.database_option
def export(
    run: str,
    format_name: str,
    out: Path,
    force: bool,
    nights: int,
    no_evidence: bool,
    repository: str,
    db: str | None,
) -> None:
    """Write a run as the PyTorch project's own files, or the dashboard as a static site.

    The site is made from the whole database; in place of a run, name the folder for it.

    \b
    Examples:
      torchstone export last --format dynamo-csv --out results/
      torchstone export nightly-0412 --format hud-v3
      torchstone export --format site public/ --nights 30
    """
    if format_name == SITE:
        write = load(EXPORT_SITE)
        for line in write(Path(run), db, force, nights, not no_evidence, repository):
            click.echo(line, err=line.startswith("note: "))
        return
    from torchstone.lab.database import export_run
    from torchstone.records import UsageError

    exported = export_run(run, format_name, db)
    taken = [name for name in exported.files if (out / name).exists()]
    if taken and not force:
        raise UsageError(f"{out / taken[0]} exists.", "Choose another --out, or add --force.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in exported.files.items():
            (out / name).write_bytes(content)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}.") from None
    for name in exported.files:
        click.echo(os.fspath(out / name))
    for remark in exported.remarks:
        click.echo(f"note: {remark}", err=True)


@click.command("import")
@click.argument("format_name", metavar="asv|pyperf|pytest-benchmark|...|db")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@opt.option("--label", default="", help="A name to find the run by.")
@opt.option("--project", default="", help="Of a history: its name (default: the folder's).")
@opt.database_option
def import_(
    format_name: str, paths: tuple[str, ...], label: str, project: str, db: str | None
) -> None:
    """Read other tools' files into a run, or join shards from other databases.

    Imported figures keep the definitions and the names of the tool that made them. Of asv, pyperf,
    pytest-benchmark and google-benchmark a whole history is read, for `torchstone history` and
    `torchstone regressions`; files that were imported before are passed over. dynamo-csv and
    hud-v3, the PyTorch project's own formats, become one run.

    \b
    Examples:
      torchstone import dynamo-csv inductor_timm_models_*.csv --label upstream
      torchstone import hud-v3 results.json
      torchstone import asv numpy-bench/results
      torchstone import pytest-benchmark .benchmarks/
      torchstone import db shard-1.db shard-2.db
    """
    from torchstone.interop.histories import READERS
    from torchstone.lab.database import import_files, join_databases

    if format_name == "db":
        lines = join_databases(paths, db)
    elif format_name in READERS:
        lines = _import_history(format_name, paths, project, db)
    else:
        imported = import_files(format_name, paths, label, db)
        lines = [f"{imported.run.id}: {len(imported.cases)} cases"]
        lines += [f"  {note}" for note in imported.notes]
    for line in lines:
        click.echo(line)


def _import_history(tool: str, paths: tuple[str, ...], project: str, db: str | None) -> list[str]:
    """What was imported, in words."""
    from torchstone.lab.regressions import import_history
    from torchstone.records.format import count
    from torchstone.show.table import sanitise

    found, added = import_history(tool, paths, project, db)
    known = f"; {count(added.known, 'file')} known already" if added.known else ""
    return [
        f"{sanitise(found.project)}: {count(added.runs, 'file')}, "
        f"{count(added.series, 'series', 'series')}, {added.values:,} values{known}",
        *(f"  {note}" for note in found.notes),
    ]

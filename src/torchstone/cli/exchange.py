"""`torchstone export` and `torchstone import`: other tools' files."""

from __future__ import annotations

import os
from pathlib import Path

import click

from torchstone.cli.options import database_option

SITE = "site"


@click.command("export")
@click.argument("run", metavar="RUN|FOLDER")
@click.option("--format", "format_name", required=True, metavar="hud-v3|dynamo-csv|site")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=".",
    show_default=True,
    help="Folder for the files; made if it is not there.",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@database_option
def export(run: str, format_name: str, out: Path, force: bool, db: str | None) -> int:
    """Write a run as the PyTorch project's own files, or the dashboard as a static site.

    The site is made from the whole database; in place of a run, name the folder for it.

    \b
    Examples:
      torchstone export last --format dynamo-csv --out results/
      torchstone export nightly-0412 --format hud-v3
      torchstone export --format site public/
    """
    if format_name == SITE:
        return _site(Path(run), db, force)
    from torchstone.lab.exchange import export_run
    from torchstone.records import UsageError

    exported = export_run(run, format_name, db)
    files = exported.files
    taken = [name for name in files if (out / name).exists()]
    if taken and not force:
        raise UsageError(f"{out / taken[0]} exists.", "Choose another --out, or add --force.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (out / name).write_bytes(content)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}.") from None
    for name in files:
        click.echo(os.fspath(out / name))
    for remark in exported.remarks:
        click.echo(f"note: {remark}", err=True)
    return 0


def _site(folder: Path, db: str | None, force: bool) -> int:
    """The dashboard's pages. Its room is found by entry point: commands do not know it."""
    from torchstone.cli.serve import load

    for line in load(SITE, "torchstone.exports")(folder, db, force):
        click.echo(line, err=line.startswith("note: "))
    return 0


@click.command("import")
@click.argument("format_name", metavar="dynamo-csv|hud-v3|db")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--label", default="", help="A name to find the run by.")
@database_option
def import_(format_name: str, paths: tuple[str, ...], label: str, db: str | None) -> int:
    """Read other tools' files into a run, or join shards from other databases.

    Imported figures keep the definitions and the names of the tool that made them.

    \b
    Examples:
      torchstone import dynamo-csv inductor_timm_models_*.csv --label upstream
      torchstone import hud-v3 results.json
      torchstone import db shard-1.db shard-2.db
    """
    from torchstone.lab.exchange import import_files, join_databases

    if format_name == "db":
        for line in join_databases(paths, db):
            click.echo(line)
        return 0
    imported = import_files(format_name, paths, label, db)
    click.echo(f"{imported.run.id}: {len(imported.cases)} cases")
    for note in imported.notes:
        click.echo(f"  {note}")
    return 0

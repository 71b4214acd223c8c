"""A database that an older program left: said at once with the remedy, and the remedy helps."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.targets.support import torchstone
from tests.web.conftest import PATIENCE_S
from tests.web.real_server import served
from torchstone.store.schema import APPLICATION_ID

DUMPS = Path(__file__).resolve().parent.parent / "store"


def make_old(path: Path, version: int) -> Path:
    """As the program of that schema left it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.executescript((DUMPS / f"version_{version}.sql").read_text(encoding="utf-8"))
        raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        raw.execute(f"PRAGMA user_version = {version}")
    return path


@pytest.mark.parametrize("version", [1, 3])
def test_the_server_says_so_when_it_starts(tmp_path: Path, version: int) -> None:
    path = make_old(tmp_path / "old.db", version)
    before = path.read_bytes()
    done = torchstone("serve", "--db", str(path), "--port", "0")
    assert done.returncode == 2
    assert done.stdout == ""
    first, second = done.stderr.strip().splitlines()
    assert first.endswith(f"{path} was made by an older Torchstone and holds no history.")
    assert f"torchstone db rebuild --db {path}" in second
    assert path.read_bytes() == before


def test_no_site_is_begun(tmp_path: Path) -> None:
    path = make_old(tmp_path / "old.db", 3)
    done = torchstone("export", "--format", "site", str(tmp_path / "site"), "--db", str(path))
    assert done.returncode == 2
    assert "torchstone db rebuild" in done.stderr
    assert not (tmp_path / "site").exists()


def test_the_remedy_is_to_be_typed_as_it_stands(tmp_path: Path) -> None:
    path = make_old(tmp_path / "old.db", 3)
    said = torchstone("serve", "--db", str(path), "--port", "0").stderr
    words = said.partition("torchstone db rebuild ")[2].split()
    rebuilt = torchstone("db", "rebuild", *words)
    assert rebuilt.returncode == 0, rebuilt.stderr
    with served(path) as address, urlopen(f"{address}/runs", timeout=PATIENCE_S) as answer:
        assert b"night-1" in answer.read()

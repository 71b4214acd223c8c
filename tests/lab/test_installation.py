"""Only what this installation made is run again unasked, however a record came to be here."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.validate.cases import arm, result
from torchstone.lab import secrets
from torchstone.lab.repro import repro, where_from
from torchstone.lab.secrets import FILE_NAME, is_ours, signature
from torchstone.records import Result, Statement, UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder where no installation has been yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "torchstone"


def signed(made: Result) -> Result:
    return replace(made, signature=signature(made.id, [one.arm for one in made.arms]))


def test_what_was_made_here_is_ours_and_the_secret_stays_with_us(home: Path) -> None:
    made = signed(result(arm("eager"), arm("inductor")))
    assert is_ours(made)
    assert where_from(made) == ""
    key = home / FILE_NAME
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == [FILE_NAME]
    assert key.read_text() not in repr(made)


def test_a_record_of_another_installation_is_not_ours(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the same machine type, with our own machine's id: nothing but the secret differs."""
    made = signed(result(arm()))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    assert not is_ours(made)  # nothing was ever made here
    assert is_ours(signed(result(arm())))
    assert "was not made by this installation" in where_from(made)
    with pytest.raises(UsageError, match="names code that would be run"):
        repro(made, trust=False, recorder=None)


def test_a_record_that_was_changed_is_not_ours(home: Path, tmp_path: Path) -> None:
    """A signature that was seen in a database cannot be put on other code."""
    made = signed(result(arm()))
    mark = tmp_path / "was-run"
    spec = replace(made.arms[0].arm, statement=Statement(f"open({str(mark)!r}, 'w').close()"))
    planted = replace(made, arms=(replace(made.arms[0], arm=spec), *made.arms[1:]))
    with pytest.raises(UsageError, match="or was changed since"):
        repro(planted, trust=False, recorder=None)
    assert not mark.exists()
    assert not is_ours(replace(made, id="another"))


def test_a_record_of_an_older_version_says_why_it_needs_trust(home: Path) -> None:
    assert "is not signed" in where_from(result(arm()))
    assert "older versions" in where_from(result(arm()))
    assert "imported from x.json" in where_from(replace(signed(result(arm())), origin="x.json"))


def test_two_that_begin_at_once_share_one_secret(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: signature("id", [arm().arm]), range(32)))
    assert len(found) == 1
    assert len(os.listdir(home)) == 1


def test_a_home_that_cannot_be_written_leaves_a_record_unsigned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    assert signature("id", [arm().arm]) == ""
    assert not is_ours(result(arm()))


def test_a_field_that_a_later_version_adds_changes_no_signature() -> None:
    told = secrets._told(arm().arm)
    assert "shapes" not in told  # at its default, as all are that older records do not have
    assert "statement" not in told

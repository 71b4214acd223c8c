"""Ledgers: kept as they are, found by id and by what they are of."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.explain.ledger_synthetic import ledger
from tests.show.synthetic_result import environment

from torchstone.records import Ledger, TorchstoneError, UsageError
from torchstone.store import open_store


def made(name: str, variant: str = "eager", machine: str = "m-1") -> Ledger:
    here = replace(environment(), machine_id=machine)
    found = ledger({"interpreter": 0.4, "kernels": 0.5}, environment=here)
    return replace(
        found,
        id=name,
        created="2026-11-16T00:00:00+00:00",
        arm=replace(found.arm, variant=variant),
    )


def test_ledgers_come_back_equal(db: Path) -> None:
    with open_store(str(db)) as store:
        assert store.save_ledger(made("l-1")) > 0
        store.save_ledger(made("l-2", "inductor"))
        with pytest.raises(UsageError, match="already stored"):
            store.save_ledger(made("l-1"))
    with open_store(str(db), read_only=True) as store:
        assert store.load_ledger("l-1") == made("l-1")
        assert store.load_ledger("last") == made("l-2", "inductor")
        with pytest.raises(UsageError, match="Several ledgers begin"):
            store.load_ledger("l")
        with pytest.raises(UsageError, match="There is no ledger 'nobody'"):
            store.load_ledger("nobody")
        assert [(one.id, one.variant) for one in store.list_ledgers()] == [
            ("l-2", "inductor"),
            ("l-1", "eager"),
        ]


def test_the_newest_of_the_same_work_on_the_same_machine(db: Path) -> None:
    with open_store(str(db)) as store:
        for one in (made("a"), made("b"), made("c", "inductor"), made("d", machine="m-2")):
            store.save_ledger(one)
        arm = replace(made("a").arm, name="whatever it is called")
        assert store.ledger_of(arm, "m-1") == made("b")
        assert store.ledger_of(replace(arm, variant="inductor"), "m-1") == made("c", "inductor")
        assert store.ledger_of(arm, "m-2") == made("d", machine="m-2")
        assert store.ledger_of(replace(arm, mode="training"), "m-1") is None
        assert store.ledger_of(replace(arm, threads=8), "m-1") is None
        assert store.ledger_of(replace(arm, env=(("A", "b"),)), "m-1") is None
        assert store.ledger_of(replace(arm, seed=7), "m-1") == made("b")
        # A ledger is of one shape, also where samples went through several.
        assert store.ledger_of(replace(arm, shapes=4), "m-1") == made("b")


@pytest.mark.sqlite_only
@pytest.mark.parametrize("how", ["cut", "flipped", "empty"])
def test_a_row_that_nobody_of_us_wrote_is_said(db: Path, how: str) -> None:
    with open_store(str(db)) as store:
        store.save_ledger(made("l-1"))
    with closing(sqlite3.connect(db)) as raw:
        (whole,) = raw.execute("SELECT document FROM ledger").fetchone()
    flipped = whole[:40] + bytes([whole[40] ^ 255]) + whole[41:]
    damaged = {"cut": whole[:30], "flipped": flipped, "empty": b""}[how]
    with closing(sqlite3.connect(db)) as raw:
        with pytest.raises(sqlite3.IntegrityError):
            raw.execute("UPDATE ledger SET document = x'00'")
        raw.execute(
            "INSERT INTO ledger (id, created, target, variant, mode, precision, device, machine_id,"
            " wall_s, findings, bytes, document) SELECT 'l-2', created, target, variant, mode,"
            " precision, device, machine_id, wall_s, findings, bytes, ? FROM ledger",
            (damaged,),
        )
        raw.commit()
    said = pytest.raises(TorchstoneError, match="The ledger l-2 cannot be read")
    with open_store(str(db), read_only=True) as store, said:
        store.load_ledger("l-2")

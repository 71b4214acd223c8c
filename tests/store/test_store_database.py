"""What goes in comes out, what is in stays in, and what is damaged is named."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from store_cases import failed_result, make_result

from torchstone.records import Conditions, Outcome, TorchstoneError, Turn, UsageError, Verdict
from torchstone.store import CorruptResultError, Summary, open_store


def test_a_result_comes_back_equal(db: Path) -> None:
    whole, failed = make_result("aa11"), failed_result("bb22")
    with open_store(str(db)) as store:
        store.save(whole)
        store.save(failed)
    with open_store(str(db), create=False) as store:
        assert store.load("aa11") == whole
        assert store.load("bb22") == failed


def test_odd_text_survives(db: Path) -> None:
    odd = replace(make_result("aa11"), label="caf\udce9 \x00 ☃", origin="", command=("a\udcff", ""))
    with open_store(str(db)) as store:
        store.save(odd)
        assert store.load("aa11") == odd
        assert "\\udce9" in store.list()[0].label


def test_last_and_prefixes(db: Path) -> None:
    with open_store(str(db)) as store:
        for name in ("abc1", "abd2", "ab", "xyz", "Abc9", "a%c"):
            store.save(make_result(name))
        assert store.load("last").id == "a%c"
        assert store.load("abc").id == "abc1"
        assert store.load("ab").id == "ab"  # the whole id wins over longer ones
        assert store.load("A").id == "Abc9"
        assert store.load("a%").id == "a%c"


def test_an_ambiguous_prefix_names_the_candidates(db: Path) -> None:
    with open_store(str(db)) as store:
        for i in range(12):
            store.save(make_result(f"ab{i:02}"))
        with pytest.raises(UsageError, match=r"'ab1': ab11, ab10\.") as caught:
            store.load("ab1")
        assert "more characters" in caught.value.remedy
        with pytest.raises(UsageError, match=r"ab04, \.\.\."):
            store.load("ab")


def test_an_unknown_id_suggests_the_nearest(db: Path) -> None:
    with open_store(str(db)) as store:
        with pytest.raises(UsageError, match="No result is stored yet"):
            store.load("last")
        store.save(make_result("20261115-7f3a9c"))
        store.save(make_result("20251001-000000"))
        for wrong in ("20261115-7f3a9d", "2026x115"):
            with pytest.raises(UsageError, match="Nearest: 20261115-7f3a9c") as caught:
                store.load(wrong)
            assert "torchstone list" in caught.value.remedy
            assert caught.value.exit_code == 2
        for hopeless in ("zzz", "", "a\0b", "\udcff", "'; DROP TABLE result; --"):
            with pytest.raises(UsageError):
                store.load(hopeless)
        assert len(store.list()) == 2


def test_the_list_is_newest_first_and_filtered(db: Path) -> None:
    with open_store(str(db)) as store:
        store.save(make_result("old", created="2026-01-01T00:00:00+00:00"))
        store.save(make_result("mid", created="2026-06-01T01:00:00+02:00", arms=("eager", "jit")))
        store.save(make_result("new", created="2026-06-01T00:00:00Z"))
        assert [s.id for s in store.list()] == ["new", "mid", "old"]
        assert [s.id for s in store.list(limit=1)] == ["new"]
        assert [s.id for s in store.list(arm="jit")] == ["mid"]
        assert store.list(arm="none") == []
        assert [s.id for s in store.list(since="2026-06-01")] == ["new"]
        cut = datetime(2026, 6, 1, tzinfo=timezone.utc) - timedelta(hours=1)
        assert [s.id for s in store.list(since=cut)] == ["new", "mid"]
        with pytest.raises(UsageError, match="not a date"):
            store.list(since="yesterday-ish")
        with pytest.raises(UsageError):
            store.list(limit=-1)


def test_a_summary_says_the_verdict_and_the_failures(db: Path) -> None:
    with open_store(str(db)) as store:
        size = store.save(make_result("aa11"))
        assert store.list() == [
            Summary(
                "aa11",
                "2026-11-15T20:00:00+00:00",
                "bench",
                "",
                "here",
                ("eager", "inductor"),
                ("ok", "ok"),
                "inductor: 1.30x faster",
                size,
            )
        ]
        store.save(make_result("aa12", verdict=Verdict.CANNOT_TELL))
        store.save(failed_result("aa13"))
        store.save(make_result("aa14", arms=("eager",)))
        store.save(make_result("aa15", arms=("base", "b", "c", "d", "e", "f")))
        lines = {s.id: s.headline for s in store.list()}
    assert lines["aa12"] == "inductor: cannot tell"
    assert lines["aa13"].endswith("inductor: crash (1 check failed)")
    assert lines["aa13"].count("inductor") == 1
    assert lines["aa14"].startswith("eager: floor 5")
    assert lines["aa14"].endswith(" ms")
    assert lines["aa15"].endswith("; and 2 more")


def test_a_summary_keeps_the_verdict_on_arms_whose_answers_vary(db: Path) -> None:
    varying = make_result("aa21")
    arms = tuple(replace(arm, outcome=Outcome.NONDETERMINISTIC) for arm in varying.arms)
    with open_store(str(db)) as store:
        store.save(replace(varying, arms=arms))
        (line,) = store.list()
    assert line.headline == (
        "inductor: 1.30x faster; eager: nondeterministic; inductor: nondeterministic"
    )


def test_a_list_longer_than_a_query_may_have_parameters(db: Path) -> None:
    tiny = make_result(arms=("eager",), turns=1, replicates=1, samples=1)
    with open_store(str(db)) as store:
        for i in range(3):
            store.save(replace(tiny, id=f"r{i}"))
        from torchstone.store import limits

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "MAX_PARAMETERS", 2)
            assert [s.arms for s in store.list(limit=10**9)] == [("eager",)] * 3


def test_the_same_id_twice_is_refused(db: Path) -> None:
    first = make_result("aa11", seed=1)
    with open_store(str(db)) as store:
        store.save(first)
        with pytest.raises(UsageError, match="aa11 is already stored"):
            store.save(make_result("aa11", seed=2))
        assert store.load("aa11") == first


@pytest.mark.parametrize("bad", ["", "last", "a b", "a\nb", "x" * 200, "\udcff"])
def test_an_unusable_id_is_refused(db: Path, bad: str) -> None:
    with open_store(str(db)) as store:
        with pytest.raises(UsageError, match="cannot be the id"):
            store.save(make_result(bad))
        assert store.list() == []


def test_what_could_not_be_read_back_is_not_stored(db: Path) -> None:
    good = make_result("aa11")
    turn: Turn = good.arms[0].turns[0]
    for broken in (
        replace(turn, wall_ns=(1.5, 2.5)),  # type: ignore[arg-type]
        replace(turn, first_ns="soon"),  # type: ignore[arg-type]
        replace(turn, noise=None),  # type: ignore[arg-type]
    ):
        arm = replace(good.arms[0], turns=(broken,))
        with open_store(str(db)) as store:
            with pytest.raises(TorchstoneError, match="aa11 cannot be stored"):
                store.save(replace(good, arms=(arm,)))
            assert store.list() == []


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE result SET label = 'x'",
        "UPDATE measurement SET outcome = 'ok'",
        "UPDATE aa_floor SET value = 0",
        "DELETE FROM result",
        "DELETE FROM measurement",
        "DELETE FROM aa_floor",
        "INSERT OR REPLACE INTO result SELECT seq, id, created, created_s, kind, 'x', origin,"
        " bytes, digest, document FROM result",
        "INSERT OR REPLACE INTO measurement"
        " SELECT NULL, result, position, arm, 'crash', samples FROM measurement",
        "REPLACE INTO aa_floor SELECT seq, machine_id, threads, allocator, step_class, 0, '' "
        "FROM aa_floor",
    ],
)
def test_the_file_itself_refuses_changes(db: Path, change: str) -> None:
    with open_store(str(db)) as store:
        store.save(make_result("aa11"))
        store.remember_aa_floor("m", Conditions(1, "default", "ms"), 0.01, {})
    raw = sqlite3.connect(db)
    with pytest.raises(sqlite3.IntegrityError, match=r"torchstone: .* is append-only"):
        raw.execute(change)
    raw.close()
    with open_store(str(db)) as store:
        assert store.load("aa11") == make_result("aa11")


def _damage(db: Path, table: str, change: str) -> None:
    """What a failing disk might do, past the triggers."""
    raw = sqlite3.connect(db)
    for trigger in ("no_update", "no_delete", "no_replace"):
        raw.execute(f"DROP TRIGGER {table}_{trigger}")
    raw.execute(change)
    raw.commit()
    raw.close()


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("result", "UPDATE result SET document = substr(document, 1, 50) WHERE id = 'bad'"),
        ("result", "UPDATE result SET document = x'' WHERE id = 'bad'"),
        ("result", "UPDATE result SET document = 7 WHERE id = 'bad'"),
        ("result", "UPDATE result SET document = 'text' WHERE id = 'bad'"),
        (
            "result",
            "UPDATE result SET document = (SELECT document FROM result WHERE id = 'good'),"
            " digest = (SELECT digest FROM result WHERE id = 'good') WHERE id = 'bad'",
        ),
        ("measurement", "DELETE FROM measurement WHERE result = 2 AND position = 1"),
        ("measurement", "UPDATE measurement SET position = 7 WHERE result = 2 AND position = 0"),
        ("measurement", "UPDATE measurement SET samples = x'01ff' WHERE result = 2"),
    ],
)
def test_a_damaged_result_is_named_and_the_others_are_readable(
    db: Path, table: str, change: str
) -> None:
    good = make_result("good", seed=1)
    with open_store(str(db)) as store:
        store.save(good)
        store.save(make_result("bad", seed=2))
        store.save(make_result("later", seed=3))
    _damage(db, table, change)
    with open_store(str(db)) as store:
        with pytest.raises(CorruptResultError, match="result bad is damaged") as caught:
            store.load("bad")
        assert caught.value.exit_code == 2
        assert store.load("good") == good
        assert store.load("last").id == "later"
        assert [s.id for s in store.list()] == ["later", "bad", "good"]
        assert store.rebuild(every=True).summaries == 2
        assert all(s.headline for s in store.list())


@pytest.mark.sqlite_only
def test_summaries_are_derived_and_can_be_rebuilt(db: Path) -> None:
    with open_store(str(db)) as store:
        store.save(make_result("aa11"))
        store.save(failed_result("bb22"))
        before = store.list()
    raw = sqlite3.connect(db)
    raw.execute("DELETE FROM summary WHERE result = 1")
    raw.execute("UPDATE summary SET document = '{\"parts\": 7}', definition = 99")
    raw.commit()
    raw.close()
    with open_store(str(db)) as store:
        assert [s.headline for s in store.list()] == ["", ""]  # damaged, and missing
        assert store.rebuild(every=True).summaries == 2
        assert store.list() == before


@pytest.mark.sqlite_only
def test_aa_floor_is_the_ninetieth_percentile_of_the_newest(db: Path) -> None:
    with open_store(str(db)) as store:
        assert store.aa_floor("m", Conditions(1, "default", "ms")) is None
        for _ in range(6):
            store.remember_aa_floor("m", Conditions(1, "default", "ms"), 0.5, {"old": True})
        assert store.aa_floor("m", Conditions(1, "default", "ms")) == 0.5
        for i in range(50):  # 0.000 to 0.049; the old ones drop out
            store.remember_aa_floor(
                "m", Conditions(1, "default", "ms"), i / 1000, {"replicates": i}
            )
        assert store.aa_floor("m", Conditions(1, "default", "ms")) == 0.044
        assert store.aa_floor("m", Conditions(2, "default", "ms")) is None
        assert store.aa_floor("m", Conditions(1, "keep", "ms")) is None
        assert store.aa_floor("m", Conditions(1, "default", "us")) is None
        assert store.aa_floor("other", Conditions(1, "default", "ms")) is None
        for bad in (-0.1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="A/A floor"):
                store.remember_aa_floor("m", Conditions(1, "default", "ms"), bad, {})
    with closing(sqlite3.connect(db)) as raw:
        assert raw.execute("SELECT count(*) FROM aa_floor").fetchone() == (56,)


def test_nothing_heavy_is_loaded_before_a_store_is_opened(python_env: dict[str, str]) -> None:
    code = (
        "import sys, torchstone.store as s; s.open_store, s.Summary\n"
        "print([m for m in ('sqlalchemy', 'sqlite3', 'numpy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=python_env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"

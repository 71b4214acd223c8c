"""How many bytes a case takes. Run with `-s` to see the figures."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

from store_cases import make_result

from torchstone.records import Result, to_data
from torchstone.store import open_store
from torchstone.store.codec import split


def _arrays(result: Result) -> list[tuple[int, ...]]:
    arrays = [
        part
        for arm in result.arms
        for turn in arm.turns
        for part in (turn.wall_ns, turn.cpu_ns, turn.probe_ns)
    ]
    return arrays + [r.warm_up.wall_ns for arm in result.arms for r in arm.replicates]


def test_a_realistic_case_is_small(db: Path) -> None:
    result = make_result(replicates=6, turns=60, samples=12)
    arrays = _arrays(result)
    count = sum(map(len, arrays))
    raw = sum(len(array("q", part).tobytes()) for part in arrays)
    text = len(json.dumps(arrays))
    packed = sum(map(len, split(result).samples))
    naive = len(json.dumps(to_data(result)))
    with open_store(str(db)) as store:
        stored = store.save(result)
    print(
        f"\n{count} samples: {packed / count:.2f} bytes each; int64 {raw / count:.2f}, "
        f"JSON {text / count:.2f}\nwhole case: {stored} bytes; JSON {naive}"
    )
    assert packed * 2 <= raw
    assert packed / count < 2.6  # two noisy low bytes and little else
    assert stored * 5 < naive


def test_the_file_grows_by_about_what_save_reports(db: Path) -> None:
    cases = [
        make_result(f"case-{i}", replicates=6, turns=60, samples=12, seed=i) for i in range(20)
    ]
    with open_store(str(db)):
        pass
    before = db.stat().st_size
    with open_store(str(db)) as store:
        told = sum(store.save(case) for case in cases)
    grown = db.stat().st_size - before
    print(f"\n20 cases: {told} bytes told, the file grew by {grown}")
    assert told <= grown < 1.6 * told  # pages of 4096 bytes are not filled to the last


def test_listing_reports_the_same_bytes(db: Path) -> None:
    with open_store(str(db)) as store:
        told = store.save(make_result())
        assert store.list()[0].bytes == told

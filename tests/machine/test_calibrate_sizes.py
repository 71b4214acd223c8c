"""Array sizes and labels: what fits into a cache is never called memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.machine.calibrate.kernels import (
    ARRAYS,
    DRAM_TIMES,
    INSIDE,
    OUTSIDE,
    Cache,
    caches_by_name,
    dram_size,
    label,
    read_caches,
    read_sizes,
    triad_size,
)
from torchstone.records import DRAM

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
USUAL = (Cache(1, 32 * KIB, 2), Cache(2, 512 * KIB, 2), Cache(3, 32 * MIB))

hierarchies = st.lists(
    st.tuples(st.integers(4 * KIB, 512 * MIB), st.integers(1, 16)), min_size=1, max_size=4
).map(
    lambda sizes: tuple(
        Cache(level, size, count) for level, (size, count) in enumerate(sorted(sizes), 1)
    )
)


@given(caches=hierarchies, arrays=st.lists(st.integers(1, 64 * GIB), min_size=1, max_size=3))
def test_memory_is_a_claim_about_every_array(caches: tuple[Cache, ...], arrays: list[int]) -> None:
    claimed = label(arrays, caches) == DRAM
    assert claimed == all(size >= DRAM_TIMES * caches[-1].all_bytes for size in arrays)


@given(caches=hierarchies, available=st.integers(0, 1 << 44), threads=st.integers(1, 64))
def test_a_planned_array_lies_where_the_plan_says(
    caches: tuple[Cache, ...], available: int, threads: int
) -> None:
    for sized in read_sizes(caches):
        assert (sized.array_bytes is None) == bool(sized.reason)
        if sized.array_bytes is not None:
            assert label([sized.array_bytes], caches) == sized.level
    triad = triad_size(caches, threads)
    if triad.array_bytes is not None:
        assert label([triad.array_bytes] * ARRAYS, caches) == triad.level
        beneath = caches[-2].bytes if len(caches) > 1 else 0
        share = ARRAYS * (triad.array_bytes + 64) / threads
        assert share >= OUTSIDE * beneath
    dram = dram_size(caches, available)
    if dram.array_bytes is not None:
        assert label([dram.array_bytes] * ARRAYS, caches) == DRAM
        assert 2 * ARRAYS * dram.array_bytes <= available


@pytest.mark.parametrize(
    ("arrays", "level"),
    [
        ([16 * KIB], "L1"),
        ([17 * KIB], ""),  # neither inside the first level nor outside it
        ([256 * KIB], "L2"),
        ([5 * MIB] * 3, "L3"),
        ([4 * MIB] * 3, "L3"),  # the trap: 69 GB/s that were called memory
        ([20 * MIB], ""),
        ([64 * MIB] * 3, ""),  # twice the last level is not enough
        ([128 * MIB - 4] * 3, ""),
        ([128 * MIB, 128 * MIB, 1 * MIB], ""),  # one of them would stay in the cache
        ([128 * MIB] * 3, DRAM),
    ],
)
def test_labels_on_a_usual_machine(arrays: list[int], level: str) -> None:
    assert label(arrays, USUAL) == level


def test_nothing_is_memory_where_the_caches_are_unknown() -> None:
    assert label([64 * GIB] * 3, ()) == ""
    sized = dram_size((), 1 << 50)
    assert sized.array_bytes is None
    assert "not known" in sized.reason


def test_all_caches_of_the_last_level_count() -> None:
    eight = (Cache(1, 32 * KIB, 64), Cache(2, 512 * KIB, 64), Cache(3, 32 * MIB, 8))
    assert dram_size(eight, 1 << 40).array_bytes == 4 * 8 * 32 * MIB
    assert label([128 * MIB] * 3, eight) == ""


def test_too_little_memory_leaves_the_roof_out_and_says_so() -> None:
    enough = 2 * ARRAYS * 128 * MIB
    assert dram_size(USUAL, enough).array_bytes == 128 * MIB
    sized = dram_size(USUAL, enough - 1)
    assert sized.array_bytes is None
    assert "3 arrays of 128 MiB (4 times the last-level cache)" in sized.reason


def test_a_level_hardly_larger_than_the_one_beneath_is_left_out() -> None:
    close = (Cache(1, 32 * KIB), Cache(2, 1 * MIB), Cache(3, 2 * MIB))
    third = read_sizes(close)[2]
    assert third.array_bytes is None
    assert third.level == "L3"
    assert triad_size(USUAL, 1).array_bytes is not None
    assert triad_size(USUAL, 64).array_bytes is None  # a part of 256 KiB lies in the second level


def write_cache(root: Path, core: int, index: int, level: int, kind: str, size: str, shared: str):
    folder = root / f"cpu{core}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in (
        ("level", str(level)),
        ("type", kind),
        ("size", size),
        ("shared_cpu_list", shared),
    ):
        (folder / name).write_text(f"{text}\n")


def test_caches_are_counted_once_each(tmp_path: Path) -> None:
    for core in range(4):
        write_cache(tmp_path, core, 0, 1, "Data", "32K", str(core))
        write_cache(tmp_path, core, 1, 1, "Instruction", "64K", str(core))
        write_cache(tmp_path, core, 2, 2, "Unified", "512K", str(core))
        write_cache(tmp_path, core, 3, 3, "Unified", "16M", "0-1" if core < 2 else "2-3")
    root = str(tmp_path)
    assert read_caches(range(4), root) == (
        Cache(1, 32 * KIB, 4, 128 * KIB),
        Cache(2, 512 * KIB, 4, 2 * MIB),
        Cache(3, 16 * MIB, 2, 32 * MIB),
    )
    assert [cache.instances for cache in read_caches([0, 1], root)] == [2, 2, 1]
    assert read_caches([9], root) == ()


def test_large_and_small_cores_count_by_the_smallest(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, 0, 1, "Data", "48K", "0")
    write_cache(tmp_path, 1, 0, 1, "Data", "32K", "1")
    (cache,) = read_caches([0, 1], str(tmp_path))
    assert (cache.bytes, cache.all_bytes) == (32 * KIB, 80 * KIB)


def test_caches_by_name_leave_instructions_out() -> None:
    found = caches_by_name({"L1d": 32768, "L1i": 65536, "L2": 1 << 20, "odd": 5, "L3": 0})
    assert found == (Cache(1, 32768), Cache(2, 1 << 20))
    assert INSIDE < 1 < OUTSIDE

"""Samples come back exactly as they went in, and hostile bytes cannot do harm."""

from __future__ import annotations

import tracemalloc
import zlib
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_cases import make_result

from torchstone.records import TwoClocks
from torchstone.store import codec, open_store
from torchstone.store.codec import (
    FORMAT,
    BlobError,
    compress,
    decompress,
    pack,
    unpack,
)

ANY_INT = st.one_of(
    st.integers(-(2**61), 2**61),
    st.integers(0, 10**7),
    st.integers(2**40, 2**61),
    st.sampled_from([0, -1, 1, 255, 256, 2**61, -(2**61)]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(ANY_INT, max_size=20), max_size=12))
def test_any_integers_round_trip(arrays: list[list[int]]) -> None:
    assert unpack(pack(arrays)) == [tuple(array) for array in arrays]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_decoded_never_a_crash(noise: bytes) -> None:
    for blob in (noise, bytes((FORMAT,)) + noise, compress(noise)):
        try:
            arrays = unpack(blob)
        except BlobError:
            continue
        assert unpack(pack(arrays)) == arrays


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_one_damaged_byte_is_noticed(data: st.DataObject) -> None:
    blob = bytearray(pack([[5_000_000 + i * i for i in range(40)], [7], []]))
    at = data.draw(st.integers(0, len(blob) - 1))
    blob[at] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack(bytes(blob))
    except BlobError:
        return
    # A few header bits of zlib carry no content (its "level" hint); nothing else may pass.
    assert found == [tuple(5_000_000 + i * i for i in range(40)), (7,), ()]


@pytest.mark.parametrize("cut", [0, 1, 2, 10, -1])
def test_cut_off_bytes_are_refused(cut: int) -> None:
    with pytest.raises(BlobError):
        unpack(pack([list(range(100))])[:cut])


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(BlobError, match="after the end"):
        unpack(pack([[1, 2]]) + b"x")
    with pytest.raises(BlobError, match="too early"):
        unpack(compress(decompress(pack([[1, 2]])) + b"x"))
    with pytest.raises(BlobError, match="belong"):
        unpack(compress(bytes(8) * 5))


def test_a_later_format_is_refused() -> None:
    with pytest.raises(BlobError, match="unknown format 2"):
        unpack(bytes((2,)) + pack([[1]])[1:])


def test_a_bomb_is_not_unpacked() -> None:
    bomb = bytes((FORMAT,)) + zlib.compress(bytes(50_000_000), 9)
    tracemalloc.start()
    with pytest.raises(BlobError, match="more than 1000000 bytes"):
        unpack(bomb, limit=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize("numbers", [[1], [2, 1], [2**63], [1, 2**63, 0, 7]])
def test_a_few_bytes_cannot_ask_for_endless_samples(numbers: list[int]) -> None:
    flat = array("Q", numbers).tobytes()
    planes = b"".join(flat[plane::8] for plane in range(8))
    with pytest.raises(BlobError):
        unpack(compress(planes))


def test_what_could_not_be_read_back_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for wide in ([0, 2**64], [2**63], [-(2**63) - 1]):
        with pytest.raises(BlobError, match="more than 8 bytes"):
            pack([wide])
    monkeypatch.setattr(codec, "MAX_SAMPLES", 10)
    with pytest.raises(BlobError, match="more than 10 samples"):
        pack([range(6), range(6)])


@pytest.mark.parametrize("with_clocks", [(0,), (1,), (0, 1)])
def test_turns_of_which_some_were_timed_twice(tmp_path: Path, with_clocks: tuple[int, ...]) -> None:
    """Where the time of day is set meanwhile, a turn has no second clock."""
    made = make_result("mixed")
    first = made.arms[0]
    clocks = TwoClocks(1, 2, 3, None)
    turns = [
        replace(turn, clocks=clocks if place % 2 in with_clocks else None)
        for place, turn in enumerate(first.turns)
    ]
    result = replace(made, arms=(replace(first, turns=tuple(turns)), *made.arms[1:]))
    with open_store(str(tmp_path / "x.db")) as store:
        store.save(result)
        assert store.load("mixed") == result

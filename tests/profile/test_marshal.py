"""Our reader of marshalled data against Python's own writer."""

from __future__ import annotations

import contextlib
import marshal
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.profile.formats import pstats_file
from torchstone.profile.formats.pstats_file import Malformed, read_marshal

names = st.one_of(
    st.text(max_size=20), st.sampled_from(["~", "<module>", "a" * 300, "é" * 200, "\udcff.py"])
)
keys = st.tuples(names, st.integers(-(2**31), 2**63), names)
seconds = st.floats(allow_nan=False) | st.integers(0, 5)
counts = st.integers(0, 2**62)
callers = st.dictionaries(keys, st.tuples(counts, counts, seconds, seconds) | counts, max_size=4)
stats = st.dictionaries(keys, st.tuples(counts, counts, seconds, seconds, callers), max_size=6)


@settings(max_examples=40)
@given(stats, st.integers(0, 4))
def test_what_python_writes_is_read_back(table: dict[Any, Any], version: int) -> None:
    assert read_marshal(marshal.dumps(table, version)) == table


@settings(max_examples=60)
@given(stats, st.data())
def test_damaged_bytes_never_do_more_than_refuse(
    table: dict[Any, Any], data: st.DataObject
) -> None:
    raw = bytearray(marshal.dumps(table))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Malformed):  # and no other exception
        assert type(read_marshal(bytes(raw))) in (dict, tuple, str, int, float, type(None))


@settings(max_examples=5)
@given(stats.filter(bool))
def test_every_cut_is_seen(table: dict[Any, Any]) -> None:
    raw = marshal.dumps(table)
    for end in range(len(raw)):
        with pytest.raises(Malformed):
            read_marshal(raw[:end])


def test_shared_values_are_numbered_as_python_numbers_them() -> None:
    """Containers take their number before what is in them; scalars after."""
    key = ("file.py", 7, "name")
    figures = (1, 1, 0.25, 0.5)
    table = {
        key: (1, 1, 0.25, 0.5, {key: figures}),
        ("g", 1, "h"): (2, 2, 0.25, 0.5, {key: figures}),
    }
    raw = marshal.dumps(table, 4)
    assert raw.count(b"r") >= 2
    assert read_marshal(raw) == table


def size(number: int) -> bytes:
    return struct.pack("<i", number)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"(" + size(2**31 - 1), "declares a size"),
        (b"(" + size(-1), "declares a size"),
        (b"u" + size(2**31 - 1), "declares a size"),
        (b"a" + size(60_000) + b"x", "cut off"),
        (b"l" + size(2**31 - 1), "digits"),
        (b"l" + size(-(2**31)), "digits"),
        (b"r" + size(0), "not there"),
        (b"r" + size(-1), "not there"),
        (b"\xa9\x01r" + size(0), "part of"),
        (b"\xfb\xa9\x03z\x01fi" + size(1) + b"z\x01nr" + size(0) + b"0", "part of"),
        (b"{i" + size(1) + b"N0", "is not (file, line, name)"),
        (b"{\xa9\x01{0N0", "is not (file, line, name)"),
        (b")\x01" * 100 + b"N", "nested deeper"),
        (b"c" + b"\0" * 100, "not read here"),
        (b"y" + b"\0" * 16, "not read here"),
        (b"z\x01\xff", "not text"),
        (b"u" + size(1) + b"\xff", "not text"),
        (b"f\x03abc", "is none"),
        (b"NN", "more behind"),
        (b"", "cut off"),
        (b"0", "not read here"),
    ],
)
def test_hostile_bytes_are_refused(raw: bytes, said: str) -> None:
    with pytest.raises(Malformed, match=said.replace("(", r"\(").replace(")", r"\)")):
        read_marshal(raw)


def test_a_million_empty_values_end_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pstats_file, "MAX_OBJECTS", 1_000)
    with pytest.raises(Malformed, match="more than 1,000 values"):
        read_marshal(b"(" + size(5_000) + b"N" * 5_000)

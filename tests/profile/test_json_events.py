"""Events come one by one, wherever the pieces of the file happen to end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from torchstone.profile.formats.chrome import EventReader
from torchstone.records import UsageError

EVENTS: list[Any] = [
    {"name": 'quotes " and \\ and é and 🎛', "ts": 12.5e-3, "args": {"deep": [[[{}]]]}},
    {"name": "", "ts": -17, "dur": 123456789},
    1234567,
    None,
    {},
]
DOCUMENT = {
    "schemaVersion": 123456,
    "passed over": {"text": 'a "quoted" \\ [{]} \\" é', "list": [1, [2, {"x": "]"}]]},
    "also passed": -12.5e3,
    "traceEvents": EVENTS,
    "exporter": "é",
    "baseTimeNanoseconds": 987654321,
}
WANTED = frozenset({"schemaVersion", "exporter", "baseTimeNanoseconds"})


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_pieces_of_any_size_give_the_same(size: int, indent: int | None, ascii_only: bool) -> None:
    data = json.dumps(DOCUMENT, indent=indent, ensure_ascii=ascii_only).encode()
    reader = EventReader(pieces(b"\xef\xbb\xbf" + data, size), "t", WANTED)
    assert list(reader) == EVENTS
    assert reader.header == {key: DOCUMENT[key] for key in WANTED}
    assert reader.ended
    of_list = EventReader(pieces(json.dumps(EVENTS, indent=indent).encode(), size), "t", WANTED)
    assert list(of_list) == EVENTS


@pytest.mark.parametrize("size", [7, 10_000])
def test_every_cut_of_a_document_is_seen(size: int) -> None:
    data = json.dumps(DOCUMENT, ensure_ascii=False).encode()
    for end in range(len(data)):
        reader = EventReader(pieces(data[:end], size), "t", WANTED)
        with pytest.raises(UsageError):
            list(reader)


def test_every_cut_of_a_list_is_seen() -> None:
    data = json.dumps([{"name": "a"}, {"name": "b"}]).encode()
    for end in range(len(data)):
        reader = EventReader(pieces(data[:end], 5), "t", WANTED)
        try:
            events = list(reader)
        except UsageError:
            continue
        assert events in ([{"name": "a"}], [{"name": "a"}, {"name": "b"}])
        assert not reader.ended

"""Our own format: everything comes back, and nothing that is not a profile comes in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.profile.support import put, read, refused, traced
from torchstone.profile import write_profile
from torchstone.records import (
    Bytecode,
    Calls,
    Cost,
    Counter,
    Estimate,
    FunctionCalls,
    Instruction,
    LineTable,
    LiveTensor,
    MemoryUse,
    Profile,
    Sampling,
)


def ratio(value: float) -> Estimate:
    return Estimate("floor", value, (value - 0.1, value + 0.1), 0.95, 5)


def full() -> Profile:
    """A profile with something in every part."""
    return replace(
        traced(),
        functions=(FunctionCalls(Calls(0, 3, 2, 0.1, 0.2), (Calls(1, 3, 2, 0.1, 0.2),)),),
        lines=(LineTable("app.py", (3, 4), (1, 2), (0.5, 0.25), text=("a", "<b>")),),
        bytecode=(Bytecode(0, (Instruction(0, 3, "LOAD_FAST", "x", jump_target=True),)),),
        memory=MemoryUse(
            (0, 5), (10, 20), (), 20, 5, traced().tree, (LiveTensor("t", 1, 8, (0,)),)
        ),
        counters=(Counter("page faults", 7.0), Counter("cycles", None, note="not here")),
        sampling=Sampling(10, 0.01, "wall", 1),
        cost=Cost(ratio(1.1), ratio(1.0), 1.0, 1.1),
        facts={"python": "3.11"},
        problems=("x",),
    )


@pytest.mark.parametrize("name", ["p.json", "p.json.gz"])
def test_everything_comes_back(tmp_path: Path, name: str) -> None:
    assert write_profile(full(), tmp_path / name, "torchstone") == ()
    assert read(tmp_path / name) == full()


def change(where: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def at(record: dict[str, Any]) -> None:
        *way, last = where.split(".")
        place: Any = record
        for part in way:
            place = place[int(part) if part.isdigit() else part]
        place[int(last) if last.isdigit() else last] = value

    return at


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("how", "guess", "how"),
        ("wall_s", "NaN", "wall_s"),
        pytest.param("wall_s", 10**400, "an integer too large", id="wall_s-endless"),
        ("tree.parents.1", 5, "tree.parents"),
        ("tree.parents.0", 0, "tree.parents"),
        ("tree.parents.1", -2, "tree.parents"),
        ("tree.frames.0", 99, "tree.frames"),
        ("tree.frames.0", -1, "tree.frames"),
        ("tree.own.0", "Infinity", "tree.own"),
        ("tree.own", [], "tree is not"),
        ("tree.unit", "miles", "tree.unit"),
        ("tree.calls.0", -1, "tree.calls"),
        ("spans.duration_ns.0", -1, "spans.duration_ns"),
        ("spans.start_ns.1", -1, "the order of spans"),
        ("spans.duration_ns.1", 10**9, "the nesting of spans"),
        ("spans.threads.8", 7, "spans.threads"),
        ("spans.threads", [0], "spans is not"),
        ("functions.0.of.frame", 70, "functions"),
        ("functions.0.callers.0.calls", -1, "functions"),
        ("lines.0.hits", [1], "lines"),
        ("bytecode.0.frame", 70, "bytecode"),
        ("memory.heap", [1], "memory"),
        ("memory.alive.0.stack.0", 70, "memory.alive"),
        ("frames.0.kind", "x><script>", "frames"),
        ("frames.0.line", "3", "expected int"),
        ("frames.0.colour", "red", "unknown field"),
        ("schema", 99, "a newer Torchstone"),
    ],
)
def test_a_record_that_breaks_its_promises_is_refused(
    tmp_path: Path, where: str, value: Any, said: str
) -> None:
    path = tmp_path / "p.json"
    write_profile(full(), path, "torchstone")
    data = json.loads(path.read_text())
    change(where, value)(data["profile"])
    assert said in refused(put(path, data))


def test_names_are_made_printable_here_too(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    write_profile(replace(full(), label="\x1b[2J", notes=("a\nb",)), path, "torchstone")
    data = json.loads(path.read_text())
    change("frames.0.name", "\x1b]0;\x07")(data["profile"])
    profile = read(put(path, data))
    assert profile.frames[0].name == "\\x1b]0;\\x07"
    assert (profile.label, profile.notes) == ("\\x1b[2J", ("a\\nb",))


@pytest.mark.parametrize("data", [[], {}, {"format": "torchstone-profile"}, {"profile": {}}])
def test_what_is_no_record_is_refused(tmp_path: Path, data: Any) -> None:
    assert "not a profile that Torchstone wrote" in refused(put(tmp_path / "p", data), "torchstone")

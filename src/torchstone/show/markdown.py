"""The report as a GitHub table, for pull requests and notes."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from torchstone.records import Measurement, Result
from torchstone.show.evidence import Note, checks, course, problems, summary
from torchstone.show.rows import Figure, figures, machine, result_table, what
from torchstone.show.table import Style, sanitise, shorten, table_line

STRIP_WIDTH = 24
NAME_WIDTH = 60
_BULLETS = {"fail": "**fail** ", "warn": "**warn** ", "note": "note "}
_TAME = re.compile(r"[\w .,()=+:%'@/-]*\Z")
_SPECIAL = re.compile(
    r"""[]!"#$&*<>?@\\^`{|}~[]|(?<![^\W_])_|_(?![^\W_])|(?<=:)//|(?<=www)\.""", re.IGNORECASE
)
_LINKING = frozenset("@#")
"""GitHub looks for mentions and issue numbers after rendering; a comment parts them."""


def markdown(result: Result) -> str:
    """Heading, table, what went wrong and the checks. Text from outside cannot become markup."""
    title, *settings = map(escape, what(result))
    where = " · ".join(map(escape, machine(result)))
    ending = [*course(result, Style()), f"id {result.id}" if result.id else ""]
    sections = [
        [" · ".join([f"**{title}**", *settings])],
        [where] if where else [],
        _table(result) if result.arms else ["Nothing was measured."],
        _bullets(problems(result)),
        _bullets(checks(result, Style())),
        ["<sub>" + " · ".join(escape(part) for part in ending if part) + "</sub>"],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def escape(text: str) -> str:
    """Text that renders as itself: no markup, no HTML, no cell border, no link."""
    return _SPECIAL.sub(lambda found: "".join(map(_entity, found[0])), sanitise(text))


def _entity(char: str) -> str:
    return f"&#{ord(char)};" + ("<!-- -->" if char in _LINKING else "")


def code(text: str) -> str:
    """A name in code type, where GitHub looks for neither mentions nor links."""
    shown = sanitise(text)
    if shown.strip() and _TAME.match(shown):
        return f"`{shown}`"
    return f"<code>{escape(text)}</code>"


def _name(text: str) -> str:
    return code(shorten(sanitise(text), NAME_WIDTH))


def _table(result: Result) -> list[str]:
    made = result_table(result, Style())
    columns: list[tuple[str, str, list[str]]] = [("arm", ":--", list(map(_name, made.names)))]
    for title, words in (*made.main.items(), *made.details.items()):
        texts = [f"{figure} {beside}".strip() for figure, beside in words]
        if title == "verdict":
            bold = zip(texts, made.roles, strict=True)
            columns.append((title, ":--", [f"**{t}**" if r == "fail" else t for t, r in bold]))
            axis, drawn = made.pictures(STRIP_WIDTH, Style()) or ("", [])
            columns.append((f"`{axis}`", ":--", [f"`{one}`" if one else "" for one in drawn]))
        else:
            columns.append((title, "--:", texts))
    kept = [column for column in columns if any(column[2])]
    heads = [[title for title, _, _ in kept], [mark for _, mark, _ in kept]]
    return [table_line(row) for row in (*heads, *zip(*(texts for *_, texts in kept), strict=True))]


def _bullets(notes: Iterable[Note]) -> list[str]:
    lines = []
    for note in notes:
        head = f"{_name(note.name)} " if note.name else _BULLETS.get(note.role, "")
        head += f"**{note.head}**" if note.role == "fail" and note.head else note.head
        remedy = f" → {escape(note.remedy)}" if note.remedy else ""
        lines.append(f"- {head}{escape(note.text)}{remedy}")
    return lines


# The public JSON document: one shape from every command, versioned, strict.
#
# Every key is explained in `docs/reference/json.md`; a test holds the two together.


DOCUMENT_SCHEMA = 1
_ONE_LINE = 180
"""Objects of plain values that fit in so many characters stay on one line."""
_COMPARISON = (
    "base new time_ratio speedup interval verdict floor typical decided_by margin threshold "
    "smallest_detectable deciding_budget_s reason"
)


def document(result: Result) -> dict[str, Any]:
    """The result as plain data. What JSON cannot hold (NaN, infinities) becomes null."""
    return {
        "schema": DOCUMENT_SCHEMA,
        **_picked(result, "id created kind command version"),
        "arms": [_arm(measurement, result.method.alpha) for measurement in result.arms],
        "comparisons": [_picked(comparison, _COMPARISON) for comparison in result.comparisons],
        **_picked(result, "checks method calibration clocks_hz remeasurements pruned sweep"),
    }


def dumps(result: Result, indent: int | None = 2) -> str:
    """The document as ASCII text. Lists of numbers stay on one line, so that it can be read."""
    return to_text(document(result), indent)


def to_text(data: Any, indent: int | None = 2) -> str:
    """Plain data as JSON text."""
    if indent is None:
        return json.dumps(data, allow_nan=False)
    return _write(data, " " * indent, "")


def plain(value: Any) -> Any:
    """Records to plain data; non-finite floats to null, lone surrogates to their escapes."""
    kind = type(value)  # nearly all values are of four types, and a run has a million of them
    if value is None or kind is int or (kind is str and value.isascii()):
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def _picked(record: object, names: str) -> dict[str, Any]:
    """These fields and properties of a record, as plain data; all null where there is none."""
    return {name: plain(getattr(record, name, None)) for name in names.split()}


def _arm(measurement: Measurement, alpha: float) -> dict[str, Any]:
    cost, calls = measurement.compile, sum(len(turn.wall_ns) for turn in measurement.turns)
    faults = sum(turn.minor_faults for turn in measurement.turns)
    return {
        "name": plain(measurement.arm.name),
        "outcome": measurement.outcome.value,
        "outcome_detail": _picked(
            measurement.detail, "message phase signal exit_code stderr remedy strays_killed"
        ),
        "time": _time(measurement, alpha),
        "memory": _picked(
            measurement.memory,
            "tensor_peak_bytes tensor_held_bytes overhead_bytes peak_bytes step_peak_bytes "
            "start_peak_bytes source",
        ),
        "compile": None
        if cost is None
        else {
            "cold_s": _seconds(cost.cold_ns) if measurement.arm.compiles else None,
            "warm_s": _seconds(cost.warm_ns) if measurement.arm.compiles else None,
            "toolchain_s": _seconds(cost.toolchain_ns),
            "first_call_s": _seconds(cost.first_call_ns),
        },
        **_picked(measurement, "contract agreement environment graphs flops"),
        "faults": {"minor_per_call": faults / (measurement.loops * calls) if calls else None},
        "noise": plain(summary(measurement)),
        "notes": plain(measurement.notes),
        "spec": plain(measurement.arm),
    }


def _time(measurement: Measurement, alpha: float) -> dict[str, Any] | None:
    found = figures(measurement, alpha)
    if found is None:
        return None
    return {
        "unit": "s",
        "floor": plain(found.floor.value),
        "floor_interval": _ends(found.floor),
        "floor_processes": found.floor.used,
        "typical": plain(found.typical.value),
        "typical_interval": _ends(found.typical),
        "process_floors": list(found.floor.processes),
        "process_typicals": list(found.typical.processes),
        "fastest": min(found.samples),
        "calls_per_sample": found.calls_per_sample,
        "calls": found.calls,
        "processes": found.processes,
        "turns": [
            {
                "process": turn.replicate,
                "turn": turn.index,
                "samples": len(turn.wall_ns),
                "minor_faults": turn.minor_faults,
                "major_faults": turn.major_faults,
                "wait_s": _seconds(turn.noise.wait_ns),
                "involuntary_switches": turn.noise.involuntary_switches,
                "steal_s": _seconds(turn.noise.steal_ns),
            }
            for turn in measurement.turns
        ],
        "samples": list(found.samples),
        "slow": _slow(measurement),
    }


def _slow(measurement: Measurement) -> list[int]:
    """The places, among all samples, of those beside a probe that ran slow."""
    from torchstone.show.charts.intervals import sample_turns  # charts come with it

    marked = {(one.process, one.index): one.dirty for one in sample_turns(measurement)}
    found: list[int] = []
    start = 0
    for turn in measurement.turns:
        found += [start + i for i in sorted(marked.get((turn.replicate, turn.index), ()))]
        start += len(turn.wall_ns)
    return found


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _ends(figure: Figure) -> list[float | None] | None:
    """Null when an end is unbounded: half an interval is none."""
    if figure.interval is None or not all(math.isfinite(end) for end in figure.interval):
        return None
    return list(figure.interval)


_encode = json.JSONEncoder(allow_nan=False).encode
"""`json.dumps` makes an encoder for each value."""


def _write(value: Any, indent: str, lead: str) -> str:
    """JSON with an indent, except that containers of plain values keep to one line."""
    if not isinstance(value, (dict, list)) or not value:
        return _encode(value)
    items = list(value.values()) if isinstance(value, dict) else value
    if not any(isinstance(item, (dict, list)) for item in items):
        line = _encode(value)
        if isinstance(value, list) or len(line) <= _ONE_LINE:
            return line
    inner = lead + indent
    if isinstance(value, dict):
        parts = [f"{_encode(k)}: {_write(v, indent, inner)}" for k, v in value.items()]
        left, right = "{", "}"
    else:
        parts = [_write(item, indent, inner) for item in value]
        left, right = "[", "]"
    return f"{left}\n{inner}" + f",\n{inner}".join(parts) + f"\n{lead}{right}"

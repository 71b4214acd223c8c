"""The report as a GitHub table, for pull requests and notes."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from torchstone.records import Check, Comparison, Level, Measurement, Outcome, Result
from torchstone.records.format import format_percent
from torchstone.show.charts.strip import sample_turns
from torchstone.show.evidence import check_text, course, doubt_text, summary
from torchstone.show.rows import (
    Figure,
    Row,
    Rows,
    axis,
    common_scale,
    figures,
    machine,
    rows,
    strip,
    what,
)
from torchstone.show.table import UNICODE, Style, sanitise, shorten

STRIP_WIDTH = 24
NAME_WIDTH = 60
_LEVEL_WORDS = {Level.FAIL: "**fail**", Level.WARN: "**warn**", Level.NOTE: "note"}
_TAME = re.compile(r"[\w .,()=+:%'@/-]*\Z")
_SPECIAL = re.compile(
    r"""[]!"#$&*<>?@\\^`{|}~[]|(?<![^\W_])_|_(?![^\W_])|(?<=:)//|(?<=www)\.""", re.IGNORECASE
)
_LINKING = frozenset("@#")
"""GitHub looks for mentions and issue numbers after rendering; a comment parts them."""


def markdown(result: Result) -> str:
    """Heading, table, what went wrong and the checks. Text from outside cannot become markup."""
    table = rows(result)
    lines = [
        f"**{escape(what(result)[0])}**" + "".join(f" · {escape(p)}" for p in what(result)[1:])
    ]
    where = " · ".join(escape(part) for part in machine(result))
    lines += ["", where] if where else []
    lines += ["", *_table(table)] if table.rows else ["", "Nothing was measured."]
    lines += _section(_outcomes(result) + _doubts(result)) + _section(_checks(result))
    ending = [*course(result, Style()), f"id {result.id}" if result.id else ""]
    lines += ["", "<sub>" + " · ".join(escape(part) for part in ending if part) + "</sub>"]
    return "\n".join(lines) + "\n"


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


def _short(name: str) -> str:
    return shorten(sanitise(name), NAME_WIDTH)


def _table(table: Rows) -> list[str]:
    columns: list[tuple[str, str, Callable[[Row], str]]] = [
        ("arm", ":--", lambda row: code(_short(row.name))),
        (f"{table.lead} per call", "--:", lambda row: f"{row.time} {row.spread}".strip()),
        ("speed-up", "--:", lambda row: row.speedup),
        (format_percent(table.level), ":--", lambda row: row.interval),
        ("verdict", ":--", lambda row: f"**{row.verdict}**" if row.role == "fail" else row.verdict),
        *_pictures(table),
        (table.other, "--:", lambda row: f"{row.other} {row.other_speedup}".strip()),
        ("memory", "--:", lambda row: f"{row.memory} {row.memory_ratio}".strip()),
        ("process", "--:", lambda row: row.process),
        ("compiler", "--:", lambda row: row.compiler),
        ("compile cold / warm", "--:", lambda row: row.compile),
    ]
    kept = [column for column in columns if any(column[2](row) for row in table.rows)]
    return [
        _line([title for title, _, _ in kept]),
        _line([mark for _, mark, _ in kept]),
        *(_line([cell(row) for _, _, cell in kept]) for row in table.rows),
    ]


def _pictures(table: Rows) -> list[tuple[str, str, Callable[[Row], str]]]:
    scale = common_scale([row.figures.samples for row in table.rows if row.figures])
    if scale is None:
        return []

    def draw(row: Row) -> str:
        if row.figures is None:
            return ""
        found = row.figures
        return f"`{strip(found.samples, found.floor.value, scale, STRIP_WIDTH, UNICODE)}`"

    return [(f"`{axis(scale, STRIP_WIDTH, UNICODE, ascii_only=False)}`", ":--", draw)]


def _line(fields: Sequence[str]) -> str:
    return "| " + " | ".join(fields) + " |"


def _section(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []


def _outcomes(result: Result) -> list[str]:
    lines = []
    for measurement in result.arms:
        if measurement.outcome is Outcome.OK:
            continue
        detail = measurement.detail
        ends = [detail.signal, "" if detail.exit_code is None else f"exit code {detail.exit_code}"]
        facts = ", ".join(part for part in (detail.phase, *ends) if part)
        word = measurement.outcome.value.replace("_", " ")
        line = f"- {code(_short(measurement.arm.name))} **{word}**"
        line += f" ({escape(facts)})" if facts else ""
        line += f": {escape(detail.message).rstrip('.')}." if detail.message else "."
        lines.append(line + (f" {escape(detail.remedy)}" if detail.remedy else ""))
    return lines


def _doubts(result: Result) -> list[str]:
    return [
        f"- {code(_short(comparison.new))} {comparison.verdict.value}: {escape(text)}"
        for comparison in result.comparisons
        if (text := doubt_text(comparison, result))
    ]


def _checks(result: Result) -> list[str]:
    lines = [
        f"- {word} {escape(check_text(check, result, Style()))}"
        for level, word in _LEVEL_WORDS.items()
        for check in result.checks
        if check.level is level
    ]
    passed = sum(check.level is Level.OK for check in result.checks)
    return lines + ([f"- {passed} check{'' if passed == 1 else 's'} ok"] if passed else [])


# The public JSON document: one shape from every command, versioned, strict.
#
# Every key is explained in `docs/reference/json.md`; a test holds the two together.


DOCUMENT_SCHEMA = 1
_ONE_LINE = 180
"""Objects of plain values that fit in so many characters stay on one line."""


def document(result: Result) -> dict[str, Any]:
    """The result as plain data. What JSON cannot hold (NaN, infinities) becomes null."""
    return {
        "schema": DOCUMENT_SCHEMA,
        "id": plain(result.id),
        "created": plain(result.created),
        "kind": plain(result.kind),
        "command": plain(result.command),
        "version": plain(result.version),
        "arms": [_arm(measurement, result.method.alpha) for measurement in result.arms],
        "comparisons": [_comparison(comparison) for comparison in result.comparisons],
        "checks": [_check(check) for check in result.checks],
        "method": plain(result.method),
        "calibration": plain(result.calibration),
        "clocks_hz": plain(result.clocks_hz),
        "remeasurements": plain(result.remeasurements),
        "pruned": plain(result.pruned),
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


def _arm(measurement: Measurement, alpha: float) -> dict[str, Any]:
    detail = measurement.detail
    return {
        "name": plain(measurement.arm.name),
        "outcome": measurement.outcome.value,
        "outcome_detail": {
            "message": plain(detail.message),
            "phase": plain(detail.phase),
            "signal": plain(detail.signal),
            "exit_code": detail.exit_code,
            "stderr": plain(detail.stderr),
            "remedy": plain(detail.remedy),
            "strays_killed": detail.strays_killed,
        },
        "time": _time(measurement, alpha),
        "memory": _memory(measurement),
        "compile": _compile(measurement),
        "contract": plain(measurement.contract),
        "agreement": plain(measurement.agreement),
        "environment": plain(measurement.environment),
        "graphs": plain(measurement.graphs),
        "flops": plain(measurement.flops),
        "faults": {"minor_per_call": _minor_per_call(measurement)},
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
        "typical": plain(found.typical.value),
        "typical_interval": _ends(found.typical),
        "calls_per_sample": found.calls_per_sample,
        "calls": found.calls,
        "processes": found.processes,
        "turns": _turns(measurement),
        "samples": list(found.samples),
        "slow": _slow(measurement),
    }


def _slow(measurement: Measurement) -> list[int]:
    """The places, among all samples, of those beside a probe that ran slow."""
    marked = {(one.process, one.index): one.dirty for one in sample_turns(measurement)}
    found: list[int] = []
    start = 0
    for turn in measurement.turns:
        found += [start + i for i in sorted(marked.get((turn.replicate, turn.index), ()))]
        start += len(turn.wall_ns)
    return found


def _turns(measurement: Measurement) -> list[dict[str, Any]]:
    """Each with what the system did to it."""
    return [
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
    ]


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _ends(figure: Figure) -> list[float | None] | None:
    """Null when an end is unbounded: half an interval is none."""
    if figure.interval is None or not all(math.isfinite(end) for end in figure.interval):
        return None
    return list(figure.interval)


def _memory(measurement: Measurement) -> dict[str, Any]:
    memory = measurement.memory
    return {
        "tensor_peak_bytes": memory.tensor_peak_bytes if memory else None,
        "tensor_held_bytes": memory.tensor_held_bytes if memory else None,
        "overhead_bytes": memory.overhead_bytes if memory else None,
        "peak_bytes": memory.peak_bytes if memory else None,
        "step_peak_bytes": memory.step_peak_bytes if memory else None,
        "start_peak_bytes": memory.start_peak_bytes if memory else None,
        "source": plain(memory.source) if memory else None,
    }


def _compile(measurement: Measurement) -> dict[str, Any] | None:
    cost = measurement.compile
    if cost is None:
        return None
    return {
        "cold_s": cost.cold_ns / 1e9,
        "warm_s": None if cost.warm_ns is None else cost.warm_ns / 1e9,
        "toolchain_s": None if cost.toolchain_ns is None else cost.toolchain_ns / 1e9,
        "first_call_s": cost.first_call_ns / 1e9,
    }


def _minor_per_call(measurement: Measurement) -> float | None:
    calls = measurement.loops * sum(len(turn.wall_ns) for turn in measurement.turns)
    return sum(turn.minor_faults for turn in measurement.turns) / calls if calls else None


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "base": plain(comparison.base),
        "new": plain(comparison.new),
        "time_ratio": plain(comparison.time_ratio),
        "speedup": plain(comparison.speedup),
        "interval": plain(comparison.interval),
        "verdict": comparison.verdict.value,
        "floor": plain(comparison.floor),
        "typical": plain(comparison.typical),
        "decided_by": plain(comparison.decided_by),
        "margin": comparison.margin,
        "threshold": plain(comparison.threshold),
        "smallest_detectable": plain(comparison.smallest_detectable),
        "deciding_budget_s": plain(comparison.deciding_budget_s),
        "reason": plain(comparison.reason),
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "rule": plain(check.rule),
        "level": check.level.value,
        "message": plain(check.message),
        "figures": plain(check.figures),
        "arms": plain(check.arms),
    }


def _write(value: Any, indent: str, lead: str) -> str:
    """JSON with an indent, except that containers of plain values keep to one line."""
    if not isinstance(value, (dict, list)) or not value:
        return json.dumps(value, allow_nan=False)
    items = list(value.values()) if isinstance(value, dict) else value
    if not any(isinstance(item, (dict, list)) for item in items):
        line = json.dumps(value, allow_nan=False)
        if isinstance(value, list) or len(line) <= _ONE_LINE:
            return line
    inner = lead + indent
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {_write(v, indent, inner)}" for k, v in value.items()]
        left, right = "{", "}"
    else:
        parts = [_write(item, indent, inner) for item in value]
        left, right = "[", "]"
    return f"{left}\n{inner}" + f",\n{inner}".join(parts) + f"\n{lead}{right}"

"""A profile in the terminal: what took most, how sure that is, what it cost, what is wrong."""

from __future__ import annotations

from collections import Counter as CountOf
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torchstone.profile.trees import Row, from_spans, side_by_side, without_imports
from torchstone.records import (
    CallTree,
    Cost,
    Counter,
    Estimate,
    Frame,
    LineTable,
    Profile,
    Sampling,
    Spans,
    UsageError,
)
from torchstone.records.format import (
    format_bytes,
    format_interval,
    format_percent,
    format_ratio,
    format_seconds,
)
from torchstone.show.rows import flow
from torchstone.show.table import (
    GAP,
    INDENT,
    Cell,
    Column,
    Style,
    cells,
    clip,
    pack,
    pad,
    wrap,
)

# Memory line by line in the terminal, beside the source.


LEAST_WIDTH = 60
MOST_LINES = 40
"""Of a file: those that added most, in their order."""
_FIGURES = 12


def lines_text(
    profile: Profile, *, color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """A table for each file; empty where no lines were looked at."""
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    parts = [_table(table, width, style) for table in profile.lines if table.increment]
    return "\n".join("\n".join(lines) + "\n" for lines in parts)


def _table(table: LineTable, width: int, style: Style) -> list[str]:
    heads = ("line".rjust(8), "runs".rjust(8), "in use".rjust(_FIGURES), "added".rjust(_FIGURES))
    lines = [style.paint(style.safe(f"memory by line: {table.file}"), "title")]
    lines.append("  " + "  ".join(heads))
    order = sorted(range(len(table.lines)), key=lambda i: -abs(table.increment[i]))[:MOST_LINES]
    for i in sorted(order):
        number = table.lines[i]
        figures = (
            str(number).rjust(8),
            f"{table.hits[i]:,}".rjust(8),
            format_bytes(table.bytes[i]).rjust(_FIGURES),
            _signed(table.increment[i]).rjust(_FIGURES),
        )
        head = "  " + "  ".join(figures) + "  "
        text = table.text[number - 1] if 0 < number <= len(table.text) else ""
        text = style.safe(text.replace("\t", "    "))
        lines.append(head + clip(text, max(10, width - cells(head)), style.glyphs.ellipsis))
    left = len(table.lines) - len(order)
    return [*lines, f"  {left:,} more lines added less"] if left > 0 else lines


def _signed(size: int) -> str:
    return "0 B" if not size else ("-" if size < 0 else "+") + format_bytes(abs(size))


# Call paths of a profile, wherever they come from, and the functions that took most.


UNKNOWN = Frame("?", kind="native")
"""Stands where a record names a frame that it does not have."""


@dataclass(frozen=True)
class FunctionRow:
    """What one function took, in the unit of the profile's tree; `calls` is None if not counted."""

    frame: Frame
    own: float
    total: float
    calls: int | None = None


def call_tree(profile: Profile) -> CallTree | None:
    """The profile's tree, or one gathered from its spans; None where there is neither.

    A tree that is not one (a parent after its child, columns of unequal length) is refused.
    """
    if profile.tree is not None:
        check_tree(profile.tree, len(profile.frames))
        return profile.tree
    if profile.spans is None or not profile.spans.frames:
        return None
    check_spans(profile.spans, len(profile.frames))
    return from_spans(profile.spans)


def check_tree(tree: CallTree, frames: int) -> None:
    """Refuse what no viewer could draw."""
    columns = [tree.frames, tree.own, tree.threads, *([tree.calls] if tree.calls else [])]
    if any(len(column) != len(tree.parents) for column in columns):
        raise _broken("its columns are of unequal length")
    if any(not -1 <= parent < node for node, parent in enumerate(tree.parents)):
        raise _broken("a parent does not come before its child")
    _check_names(tree.frames, tree.threads, frames, "it")


def check_spans(spans: Spans, frames: int) -> None:
    """Refuse spans that no viewer could draw."""
    if {len(spans.threads), len(spans.start_ns), len(spans.duration_ns)} - {len(spans.frames)}:
        raise _broken("the columns of its spans are of unequal length")
    _check_names(spans.frames, spans.threads, frames, "a span")


def _check_names(named: Sequence[int], threads: Sequence[int], frames: int, what: str) -> None:
    if named and not (min(named) >= 0 and max(named) < frames):
        raise _broken(f"{what} names a frame that is not there")
    if threads and min(threads) < 0:
        raise _broken(f"{what} names a thread that is not there")


def _broken(why: str) -> UsageError:
    return UsageError(
        f"The profile cannot be shown: {why}.", "Read it again from the file that it was made from."
    )


def unit_of(profile: Profile, tree: CallTree | None) -> str:
    """What the figures of `top_functions` are counted in."""
    return "seconds" if profile.functions or tree is None else tree.unit


def whole_of(profile: Profile, tree: CallTree | None) -> float:
    """What all functions together took: the denominator of shares."""
    if profile.functions:
        return sum(entry.of.own_s for entry in profile.functions)
    return sum(tree.own) if tree is not None else 0.0


def top_functions(
    profile: Profile, tree: CallTree | None, most: int = 20
) -> tuple[FunctionRow, ...]:
    """The functions that took most by themselves: exact figures where there are some, else the
    tree's."""
    if profile.functions:
        counted = sorted(profile.functions, key=lambda entry: -entry.of.own_s)[:most]
        return tuple(
            FunctionRow(frame_at(profile, e.of.frame), e.of.own_s, e.of.total_s, e.of.calls)
            for e in counted
        )
    return _top_of_tree(profile, tree, most) if tree is not None else ()


def frame_at(profile: Profile, index: int) -> Frame:
    """A frame by its number, or a stand-in."""
    return profile.frames[index] if 0 <= index < len(profile.frames) else UNKNOWN


def _top_of_tree(profile: Profile, tree: CallTree, most: int) -> tuple[FunctionRow, ...]:
    own = _summed(tree.frames, tree.own, len(profile.frames))
    counted = _summed(tree.frames, tree.calls, len(profile.frames)) if tree.calls else None
    best = sorted(set(tree.frames), key=lambda frame: (-own[frame], frame))[:most]
    totals = _totals(tree, best)
    return tuple(
        FunctionRow(
            profile.frames[frame],
            own[frame],
            totals[rank],
            None if counted is None else round(counted[frame]),
        )
        for rank, frame in enumerate(best)
    )


def _summed(frames: Sequence[int], values: Sequence[float], count: int) -> list[float]:
    sums = [0.0] * count
    for frame, value in zip(frames, values, strict=True):
        sums[frame] += value
    return sums


def _totals(tree: CallTree, chosen: Sequence[int]) -> list[float]:
    """What was taken beneath each chosen frame, a recursion counted once."""
    bits = {frame: 1 << rank for rank, frame in enumerate(chosen)}
    above: list[int] = []
    sums: dict[int, float] = {}
    for parent, frame, own in zip(tree.parents, tree.frames, tree.own, strict=True):
        # One bit a chosen frame says which of them lie on the path: no walk up, no double count.
        path = (above[parent] if parent >= 0 else 0) | bits.get(frame, 0)
        above.append(path)
        sums[path] = sums.get(path, 0.0) + own
    return [
        sum(value for path, value in sums.items() if path >> rank & 1)
        for rank in range(len(chosen))
    ]


# The words and figures of a profile that its text, its page and its picture share.


def format_amount(value: float, unit: str, *, ascii_only: bool = False) -> str:
    """A weight in the unit of its tree."""
    if unit == "seconds":
        return format_seconds(value, 3, ascii_only=ascii_only)
    if unit == "bytes":
        return format_bytes(value)
    whole = round(value)
    return f"{whole:,}" if abs(value - whole) < 1e-9 else f"{value:,.1f}"


def shares(profile: Profile, row: FunctionRow, whole: float) -> tuple[float | None, float | None]:
    """Own and total as shares of the whole; None where there is no whole."""
    if not whole > 0:
        return None, None
    return row.own / whole, row.total / whole


def sampled_interval(
    profile: Profile, part: float, whole: float, unit: str
) -> tuple[float, float] | None:
    """The interval of a share of samples; None where nothing was sampled."""
    from torchstone.stats.drift import share_interval

    if profile.sampling is None or not whole > 0:
        return None
    samples = whole if unit == "samples" else float(profile.sampling.samples)
    return share_interval(part / whole * samples, samples)


def work_of(profile: Profile) -> str:
    """What it is of, whatever way it was looked at: its label without the way."""
    return profile.label.removesuffix(f" ({profile.how})")


def estimate_words(estimate: Estimate, *, ascii_only: bool = False) -> str:
    """`1.02× (1.01–1.03)`."""
    ratio = format_ratio(estimate.time_ratio, 2, ascii_only=ascii_only)
    return f"{ratio} ({format_interval(estimate.interval, 2, ascii_only=ascii_only)})"


def cost_words(cost: Cost, *, ascii_only: bool = False) -> str:
    """What profiling cost, beside what the machine makes of nothing."""
    words = (
        f"profiling took {estimate_words(cost.ratio, ascii_only=ascii_only)} of the unprofiled "
        "time; unprofiled against unprofiled: "
        f"{estimate_words(cost.control, ascii_only=ascii_only)}"
    )
    low, high = cost.ratio.interval
    calm_low, calm_high = cost.control.interval
    if low <= calm_high and calm_low <= high:
        words += "; the two cannot be told apart"
    return words


_WEIGHED = ("sampler", "py-spy")
"""Tools of ours whose samples stand for all the time since the one before."""


def _late_words(profile: Profile, sampling: Sampling) -> str:
    """What became of samples that could not be taken in time."""
    if not sampling.lost:
        return ""
    if profile.tool not in _WEIGHED:
        return f", {sampling.lost:,} lost"
    return f" ({sampling.lost:,} more held up by native code, their time counted)"


def facts_of(profile: Profile) -> list[tuple[str, str]]:
    """Names and values of what the profile is, those that it has."""
    sampling = profile.sampling
    taken = ""
    if sampling is not None:
        taken = f"{sampling.samples:,}"
        if sampling.interval_s > 0:
            taken += f" every {format_seconds(sampling.interval_s, 3)}"
        taken += f", {sampling.clock} clock{_late_words(profile, sampling)}"
    facts = [
        ("how", profile.how),
        ("tool", profile.tool),
        ("taken", profile.created),
        ("wall time", format_seconds(profile.wall_s, 3) if profile.wall_s else ""),
        ("steps", f"{profile.steps:,}" if profile.steps else ""),
        ("samples", taken),
        (
            "call paths",
            "estimated: the source knows callers, not paths" if profile.estimated else "",
        ),
        ("command", " ".join(profile.command)),
        ("from", "" if profile.origin == "here" else profile.origin),
        *((str(key), str(value)) for key, value in profile.facts.items()),
    ]
    return [(name, value) for name, value in facts if value]


TOP = 20
LEAST_FUNCTION = 28
"""Characters of a function's name before its place gets any: `<built-in method time.sleep>`."""
MOST_ALIVE = 5
LEAST_WORDS, LEAST_PLACE = 34, 12
"""Columns for a function's name and place together, and for the place."""
_UNIT_WORDS = {"seconds": "time", "samples": "samples", "bytes": "memory", "calls": "calls"}


def profile_text(
    profile: Profile,
    *,
    color: bool = False,
    width: int = 100,
    unicode: bool = True,
    top: int = TOP,
    imports: bool = False,
) -> str:
    """The whole summary; no line is wider than `width` (60 at least). With `imports`, what was
    called to import modules is among the functions; else it is only summed up."""
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    sections = [
        [style.paint(line, "title") for line in flow(_heading(profile), width, style)],
        _functions(profile, width, style, top, imports),
        _memory(profile, width, style),
        _counters(profile.counters, width, style),
        _words(profile, width, style),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _heading(profile: Profile) -> list[str]:
    facts = dict(facts_of(profile))
    said = [f"profile of {profile.label or profile.id}"]
    return said + [
        facts[name] if name in ("how", "tool") else f"{name} {facts[name]}"
        for name in ("how", "tool", "wall time", "steps", "samples")
        if name in facts
    ]


def repeated_names(profile: Profile) -> frozenset[str]:
    """Names that more than one function has: many a `forward`."""
    counts = CountOf(frame.name for frame in profile.frames)
    return frozenset(name for name, times in counts.items() if times > 1)


ONLY_IMPORTS = 0.995
"""A program of which so much went into imports has nothing else to show."""


def _functions(profile: Profile, width: int, style: Style, top: int, imports: bool) -> list[str]:
    """One table: where the terminal is narrow, places are cut at the front, then figures go."""
    tree = call_tree(profile)
    unit, head = unit_of(profile, tree), ""
    left = 0.0
    if tree is not None and not profile.functions and not imports:
        whole = sum(tree.own)
        rest, left = without_imports(tree, profile.frames)
        if 0 < whole * ONLY_IMPORTS <= left:
            head = "; nearly all of it in imports"
        elif left > 0:
            tree = rest
            amount = format_amount(left, unit, ascii_only=style.ascii_only)
            head = f"; imports left out ({amount}, {format_percent(left / whole)} of all)"
    rows = top_functions(profile, tree, top)
    if not rows:
        return []
    names = Column("function", tuple(Cell(style.safe(row.frame.name)) for row in rows))
    figures = _figures(profile, rows, unit, whole_of(profile, tree), style)
    table = _one_table(names, figures, rows, width, style)
    said = wrap(f"most {_UNIT_WORDS.get(unit, unit)} by itself{head}", width)
    return [*(style.paint(line, "title") for line in said), *table]


def _one_table(
    names: Column, figures: list[Column], rows: Sequence[FunctionRow], width: int, style: Style
) -> list[str]:
    room = width - INDENT
    shown = [column for column in figures if not column.empty]

    def free(columns: Sequence[Column]) -> int:
        return room - sum(column.width + GAP for column in columns)

    while len(shown) > 1 and free(shown) < LEAST_WORDS:
        shown = [*shown[:2], *shown[3:]] if len(shown) > 2 else shown[:1]
    beside = max(LEAST_PLACE, free(shown) - min(names.width, LEAST_FUNCTION, free(shown)) - GAP)
    places = _places(rows, style, beside)
    tables = pack(names, [[*shown, places]], width, style)
    return [line for table in tables for line in table]


def _figures(
    profile: Profile, rows: tuple[FunctionRow, ...], unit: str, whole: float, style: Style
) -> list[Column]:
    def amount(value: float) -> str:
        return format_amount(value, unit, ascii_only=style.ascii_only)

    both = [shares(profile, row, whole) for row in rows]
    intervals = [sampled_interval(profile, row.own, whole, unit) for row in rows]
    ends = [f"{_ends(one, style)} %" if one else "" for one in intervals]
    return [
        _column("own", (amount(row.own) for row in rows)),
        _column("share", (format_percent(own) for own, _ in both)),
        *([_column("95 %", ends)] if any(ends) else []),
        _column("total", (amount(row.total) for row in rows)),
        _column("share", (format_percent(total) for _, total in both)),
        _column("calls", ("" if row.calls is None else f"{row.calls:,}" for row in rows)),
    ]


def _column(title: str, texts: Iterable[str]) -> Column:
    return Column(title, tuple(Cell(text) for text in texts), right=True)


def _ends(interval: tuple[float, float], style: Style) -> str:
    """The ends of a share's interval, without the sign."""
    low, high = (format_percent(end).removesuffix(" %") for end in interval)
    return f"{low}{'-' if style.ascii_only else '–'}{high}"


def _places(rows: Sequence[FunctionRow], style: Style, room: int) -> Column:
    """File and line, of long ones the end."""

    def place(row: FunctionRow) -> str:
        parts = row.frame.file.replace("\\", "/").split("/")
        short = "/".join(parts[-2:])
        text = style.safe(f"{short}:{row.frame.line}" if row.frame.line else short)
        if cells(text) <= room:
            return text
        ellipsis = style.glyphs.ellipsis
        return ellipsis + text[len(text) - max(1, room - len(ellipsis)) :]

    return Column("where", tuple(Cell(place(row), "dim") for row in rows))


def _memory(profile: Profile, width: int, style: Style) -> list[str]:
    memory = profile.memory
    if memory is None or not (memory.peak_bytes or memory.alive):
        return []
    head = f"memory: peak {format_bytes(memory.peak_bytes)}"
    if memory.peak_ns:
        head += f" after {format_seconds(memory.peak_ns * 1e-9, 3, ascii_only=style.ascii_only)}"
    alive = sorted(memory.alive, key=lambda tensor: -tensor.bytes)[:MOST_ALIVE]
    lines = [style.paint(head, "title")]
    if memory.source:
        lines += _hung("of", memory.source, width, style)
    for tensor in alive:
        figures = f"{format_bytes(tensor.bytes)} in {tensor.count:,}"
        lines += _hung(pad(figures, 18), tensor.what, width, style)
    return lines


def _counters(counters: tuple[Counter, ...], width: int, style: Style) -> list[str]:
    if not counters:
        return []
    room = max(cells(style.safe(counter.name)) for counter in counters)
    lines = [style.paint("counters", "title")]
    for counter in counters:
        lines += _hung(
            pad(style.safe(counter.name), min(room, width // 2)), _counted(counter), width, style
        )
    return lines


def _counted(counter: Counter) -> str:
    if counter.value is None:
        return counter.note or "not measurable here"
    said = format_amount(counter.value, counter.unit)
    if counter.unit not in ("bytes", "seconds"):
        said = f"{said} {counter.unit}".strip()
    return f"{said} ({counter.note})" if counter.note else said


def _words(profile: Profile, width: int, style: Style) -> list[str]:
    lines: list[str] = []
    if profile.cost is not None:
        lines += _hung("cost", cost_words(profile.cost, ascii_only=style.ascii_only), width, style)
    if profile.estimated:
        said = "call paths are estimated: the source knows callers, but not which path led to them"
        lines += _hung("note", said, width, style)
    for problem in profile.problems:
        lines += _hung("warn", problem, width, style, "warn")
    for note in profile.notes:
        lines += _hung("note", note, width, style)
    return lines


def _hung(head: str, text: str, width: int, style: Style, role: str = "dim") -> list[str]:
    """A word and its text beside it, wrapped beneath itself."""
    head = "  " + head + "  "
    room = max(20, width - cells(head))
    rows = wrap(style.safe(text), room, ellipsis=style.glyphs.ellipsis)
    first = style.paint(head, role) + rows[0]
    return [first, *(" " * cells(head) + row for row in rows[1:])]


# Several ways of profiling the same work, side by side in the terminal.


def ways_text(
    profiles: Sequence[Profile], *, color: bool = False, width: int = 100, unicode: bool = True
) -> str:
    """Of each work that was looked at in several ways (a variant is one): shares by way with
    intervals, what each cost, and where they disagree. Empty where there is none."""
    width, style = max(width, LEAST_WIDTH), Style(color, unicode)
    works: dict[str, list[Profile]] = {}
    for profile in profiles:
        works.setdefault(work_of(profile), []).append(profile)
    compared = {
        work: of for work, of in works.items() if len({one.how for one in of}) == len(of) > 1
    }
    texts = [
        _of_one_work(of, work if len(compared) > 1 else "", width, style)
        for work, of in compared.items()
    ]
    return "\n".join(texts)


def _of_one_work(profiles: Sequence[Profile], name: str, width: int, style: Style) -> str:
    found = side_by_side(profiles)
    head = "side by side: share of the time, callees included"
    head = f"{style.safe(name)}, {head}" if name else head
    lines = [style.paint(row, "title") for row in wrap(head, width)]
    if found.rows:
        names = Column("function", tuple(Cell(style.safe(row.name)) for row in found.rows))
        columns = [
            _column(way, (_share(row, way, style) for row in found.rows)) for way in found.ways
        ]
        places = tuple(Cell(style.safe(f"{row.file}:{row.line}"), "dim") for row in found.rows)
        marks = tuple(Cell("differ" if row.apart else "", "warn") for row in found.rows)
        tables = pack(
            names, [columns, [Column("", marks)], [Column("where", places)]], width, style
        )
        lines += [line for table in tables for line in table]
    lines += _costs(profiles, width, style)
    head = "Where they disagree by more than chance:" if found.sentences else ""
    head = head or "No function's shares differ by more than chance."
    lines += ["", *wrap(head, width, ellipsis=style.glyphs.ellipsis)]
    for sentence in found.sentences:
        rows = wrap(style.safe(sentence), width - 2, ellipsis=style.glyphs.ellipsis)
        lines += [f"  {row}" for row in rows]
    return "\n".join(lines) + "\n"


def _share(row: Row, way: str, style: Style) -> str:
    share = row.shares.get(way)
    if share is None:
        return ""
    said = format_percent(share.value)
    return said if share.interval is None else f"{said} ({_ends(share.interval, style)})"


def _costs(profiles: Sequence[Profile], width: int, style: Style) -> list[str]:
    """What each cost: time with it against without, beside nothing against nothing."""
    paid = [(profile, profile.cost) for profile in profiles if profile.cost is not None]
    if not paid:
        return []

    def said(estimate: Estimate) -> str:
        return estimate_words(estimate, ascii_only=style.ascii_only)

    names = Column("way", tuple(Cell(style.safe(f"{one.how} ({one.tool})")) for one, _ in paid))
    columns = [
        _column("time", (said(cost.ratio) for _, cost in paid)),
        _column("control", (said(cost.control) for _, cost in paid)),
        _column("written", (format_bytes(cost.footprint_bytes) for _, cost in paid)),
        _column("memory", (format_bytes(cost.memory_bytes) for _, cost in paid)),
    ]
    tables = pack(names, [columns], width, style)
    title = style.paint("what profiling cost: profiled against unprofiled", "title")
    return ["", title, *(line for table in tables for line in table)]

"""From the recorded calls of some steps to lines of code that do what they need not. Pure."""

from __future__ import annotations

import ast
import linecache
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from statistics import median

from torchstone.explain.passes.calls import GIVEN, KEPT, MADE, Call, Frame, Seen
from torchstone.records.ledger import CodeSite

LEAST_REPEATS = 8
"""Calls from one line in one step. Four heads, three projections or two halves are no loop worth a
word; a batch of eight is."""
ALIKE = 0.9
"""Of the calls of a line that must be alike."""
LEAST_FREE = 0.5
"""Of the calls in a loop: those that need nothing of the turn before. In a recurrent net that is
only the part that reads the input; in a loop over a batch it is all but the sum."""
SMALL_BYTES = 64 * 1024
"""A copy below costs more to call than to do: a core moves so much in about 5 µs."""
LEAST_SLOWER = 1.1
"""An op with a strided input, against the same with a contiguous one."""
BYTES = {"complex128": 16, "float64": 8, "complex64": 8, "int64": 8, "float32": 4, "int32": 4}
WIDE = ("float64", "complex128")
READS_ONE = "aten::_local_scalar_dense"
CAST = "aten::_to_copy"
GROWING = "aten::cat"
FROM_PYTHON = ("aten::lift_fresh", "aten::detach")
"""How a tensor comes in that was made of an array or of Python numbers."""
COPIES = (CAST, GROWING, "aten::copy_", "aten::clone", "aten::stack", "aten::index_put_")
MOST_OPS = 3
Stack = tuple[Frame, ...]
Group = tuple[str, Stack]


def find_sites(
    steps: Sequence[tuple[Call, ...]], sources: Sources, entry_ns: float = 0.0
) -> tuple[CodeSite, ...]:
    """All sites of a step that was recorded several times; `entry_ns` is what it takes to call an
    op at all, as recorded."""
    if not steps or not steps[-1]:
        return ()
    step = Step(_quickest(steps), sources, entry_ns)
    loops = _batch_loops(step)
    taken = [loop for loop, _ in loops]
    return tuple(
        one
        for one in (
            *(site for _, site in loops),
            *_small_copies(step, taken),
            *_items(step),
            *_same_values(step, steps),
            *_repeated(step),
            *_wide(step),
            *_casts(step),
            *_strided(step),
        )
        if one.file
    )


def _quickest(steps: Sequence[tuple[Call, ...]]) -> tuple[Call, ...]:
    """The last step, each call at its quickest where all steps went the same way."""
    last = steps[-1]
    alike = [step for step in steps if [call.op for call in step] == [call.op for call in last]]
    times = zip(*([call.ns for call in step] for step in alike), strict=True)
    return tuple(replace(call, ns=min(seen)) for call, seen in zip(last, times, strict=True))


class Step:
    """The calls of one step, and what a share of them is."""

    def __init__(self, calls: tuple[Call, ...], sources: Sources, entry_ns: float) -> None:
        self.calls, self.sources, self._entry = calls, sources, entry_ns
        forward = [call for call in calls if not call.backward]
        self._forward = max(1, len(forward))
        self._kernels = max(1.0, sum(map(self.kernel, forward)))
        self.written: set[int] = set()
        """Memory that something of the step itself was written to."""
        for call in calls:
            if call.writes and not call.constant:
                self.written.update(one.storage for one in call.outputs)

    def kernel(self, call: Call) -> float:
        """Its time without getting there; views have no kernel."""
        return 0.0 if call.view else max(0.0, call.ns - self._entry)

    def site(self, kind: str, frame: Frame, calls: Sequence[Call], **more: object) -> CodeSite:
        """A site with the shares of these calls."""
        worked = [call.op for call in calls if not call.view] or [call.op for call in calls]
        ops = [f"{op} ×{n}" for op, n in Counter(worked).most_common(MOST_OPS)]
        made = CodeSite(
            kind,
            frame.file,
            frame.line,
            self.sources.text(frame.file, frame.line),
            tuple(ops),
            float(len(calls)),
            len(calls) / self._forward,
            min(1.0, sum(map(self.kernel, calls)) / self._kernels),
        )
        return replace(made, **more)  # type: ignore[arg-type]

    def groups(self, calls: Iterable[Call]) -> dict[Group, list[Call]]:
        """Calls of one op from one place in the code."""
        found: dict[Group, list[Call]] = defaultdict(list)
        for call in calls:
            if call.stack:
                found[call.op, call.stack].append(call)
        return found

    def looped(self, stack: Stack) -> tuple[int, Loop] | None:
        """The innermost frame of a stack that is inside a loop, by its number, and the loop."""
        for place in reversed(range(len(stack))):
            found = self.sources.loops(stack[place].file, stack[place].line)
            if found:
                return place, found[0]
        return None


# A Python loop over the batch.


def _batch_loops(step: Step) -> list[tuple[Loop, CodeSite]]:
    """The largest site of each loop."""
    found: dict[Loop, CodeSite] = {}
    working = (call for call in step.calls if not call.view and call.op != READS_ONE)
    for (_, stack), calls in step.groups(working).items():
        sliced = _on_slices(calls)
        where = _loop_of(step, stack, sliced) if len(sliced) >= LEAST_REPEATS else None
        if where is None:
            continue
        place, loop, inside = where
        shape = _base_shape(sliced)
        detail = f"each on a slice of one tensor{shape}, in the loop of line {loop.first}"
        site = step.site("batch-loop", stack[place], inside, repeats=len(sliced), detail=detail)
        known = found.get(loop)
        if known is None or (site.repeats, site.calls) > (known.repeats, known.calls):
            found[loop] = replace(site, ops=(f"{calls[0].op} ×{len(sliced)}",))
    return list(found.items())


def _loop_of(
    step: Step, stack: Stack, sliced: Sequence[Call]
) -> tuple[int, Loop, list[Call]] | None:
    """The loop that goes over the slices: in the innermost function that was entered only once for
    all of them; and all that is called in it. None where its turns need each other."""
    shared = [
        place
        for place, one in enumerate(zip(*(c.entered for c in sliced), strict=True))
        if len({*one}) == 1
    ]
    if not shared:
        return None
    place = max(shared)
    for loop in step.sources.loops(stack[place].file, stack[place].line):
        inside = _inside(step, stack[:place], loop)
        if _free_share(inside, sliced) >= LEAST_FREE:
            return place, loop, inside
    return None


def _inside(step: Step, outer: Stack, loop: Loop) -> list[Call]:
    """All calls that the loop makes, whatever they go through."""
    place = len(outer)
    return [
        call
        for call in step.calls
        if len(call.stack) > place
        and call.stack[:place] == outer
        and call.stack[place].file == loop.file
        and loop.first <= call.stack[place].line <= loop.last
    ]


def _on_slices(calls: Sequence[Call]) -> list[Call]:
    """Those that each read another slice of one tensor, and are alike in all else they read."""
    bases: dict[int, list[tuple[Call, int]]] = defaultdict(list)
    for call in calls:
        for place, one in enumerate(call.inputs):
            if _is_slice(one):
                bases[one.storage].append((call, place))
    best: list[Call] = []
    for seen in bases.values():
        offsets = {call.inputs[place].offset for call, place in seen}
        shapes = Counter(call.inputs[place].shape for call, place in seen)
        alike = shapes.most_common(1)[0][1] >= ALIKE * len(seen)
        if len(seen) > len(best) and alike and len(offsets) >= ALIKE * len(seen):
            some = [call for call, _ in seen]
            best = some if _else_alike(some) else best
    return best


def _is_slice(one: Seen) -> bool:
    return one.numel > 0 and 2 * one.numel <= one.whole


def _else_alike(calls: Sequence[Call]) -> bool:
    """Whether the calls share their weights: experts with weights of their own are no batch."""
    least = min(len(call.inputs) for call in calls)
    for place in range(least):
        read = [call.inputs[place] for call in calls]
        kept = {one.storage for one in read if one.origin in (KEPT, GIVEN)}
        if len(kept) > 1 or (kept and any(one.origin == MADE for one in read)):
            return False
    return True


def _base_shape(calls: Sequence[Call]) -> str:
    for one in calls[0].inputs:
        if _is_slice(one):
            size = "×".join(map(str, one.shape)) or "1"
            return f" ({size} of {one.whole:,} elements)"
    return ""


def _free_share(inside: Sequence[Call], sliced: Sequence[Call]) -> float:
    """Of the calls in a loop, those that read nothing that an earlier turn of the loop made."""
    keys = [(call.op, call.stack) for call in inside]
    counts = Counter(keys)
    slices = {id(call) for call in sliced}
    # A turn begins with the slice, or with what each turn does once before it.
    before_it = takewhile(lambda pair: id(pair[0]) not in slices, zip(inside, keys, strict=True))
    first = next((key for _, key in before_it if counts[key] == len(sliced)), None)
    turn, made, tied = 0, dict[int, int](), set[int]()
    free = working = 0
    for call, key in zip(inside, keys, strict=True):
        turn += key == first if first is not None else id(call) in slices
        read = {one.storage for one in call.inputs}
        before = any(made.get(storage, turn) < turn for storage in read) or bool(read & tied)
        if not call.view:
            working += 1
            free += not before
            wrote = {one.storage for one in call.outputs if one.origin == MADE}
            made |= dict.fromkeys(wrote, turn)
            tied = tied | wrote if before else tied - wrote
    return free / working if working else 0.0


# Small copies and single values.


def _small_copies(step: Step, taken: Sequence[Loop]) -> list[CodeSite]:
    """Copies from one line, again and again; not where the loop is a site already."""
    found = []
    for (op, stack), calls in step.groups(c for c in step.calls if c.op in COPIES).items():
        where = step.looped(stack)
        if len(calls) < LEAST_REPEATS or calls[0].backward or where is None or where[1] in taken:
            continue
        if median(map(_moved, calls)) > SMALL_BYTES:
            continue
        grows = op == GROWING and _grows(calls)
        detail = "grow" if grows else "cast" if op == CAST else "copy"
        frame = stack[where[0]]
        inside = [call for call in step.calls if call.stack == stack]
        found.append(step.site("small-copies", frame, inside, repeats=len(calls), detail=detail))
    return found


def _moved(call: Call) -> float:
    """Bytes that it writes; of a slice that is written to, that slice."""
    out = call.inputs[0] if call.writes and call.inputs else next(iter(call.outputs), None)
    return out.numel * BYTES.get(out.dtype, 2) if out is not None else 0.0


def _grows(calls: Sequence[Call]) -> bool:
    """Each takes in what the one before made, and adds to it."""
    pairs = pairwise(calls)
    into = sum(
        any(one.storage == old.outputs[0].storage for one in new.inputs)
        for old, new in pairs
        if old.outputs
    )
    return into >= ALIKE * (len(calls) - 1)


def _items(step: Step) -> list[CodeSite]:
    """Single values that are read out in a loop: `.item()`, `float(t)`, `if t > 0`."""
    found = []
    for (_, stack), calls in step.groups(c for c in step.calls if c.op == READS_ONE).items():
        where = step.looped(stack)
        if len(calls) >= LEAST_REPEATS and where is not None:
            frame = stack[where[0]]
            inside = [call for call in step.calls if call.stack and call.stack == stack]
            loop = f"in the loop of line {where[1].first}"
            found.append(step.site("item", frame, inside, repeats=len(calls), detail=loop))
    return found


# The same value again.


def _same_values(step: Step, steps: Sequence[tuple[Call, ...]]) -> list[CodeSite]:
    """Values made of nothing that came with the step, and the same in every one of them."""
    seen = [_values(one) for one in steps]
    lines: dict[tuple[Stack, Frame], list[Call]] = defaultdict(list)
    for call in step.calls:
        if _is_value(call) and call.stack and not _is_written(call, step):
            key = (call.op, call.stack)
            if len(seen) > 1 and all(one[key] == seen[0][key] for one in seen):
                lines[call.stack, call.stack[-1]].append(call)
    return [
        step.site("same-value", frame, calls, detail="step") for (_, frame), calls in lines.items()
    ]


def _is_value(call: Call) -> bool:
    cast = call.op == CAST and any(one.dtype != call.outputs[0].dtype for one in call.inputs)
    return call.constant and call.value is not None and not call.view and not cast


def _is_written(call: Call, step: Step) -> bool:
    return any(one.storage in step.written for one in call.outputs)


def _values(calls: Iterable[Call]) -> dict[Group, list[int | None]]:
    found: dict[Group, list[int | None]] = defaultdict(list)
    for call in calls:
        if call.constant and not call.view:
            found[call.op, call.stack].append(call.value)
    return found


def _repeated(step: Step) -> list[CodeSite]:
    """The same op on the same values more than once in one step."""
    writes: Counter[int] = Counter()
    found: dict[tuple[object, ...], list[Call]] = defaultdict(list)
    for call in step.calls:
        if call.writes:
            writes.update({one.storage for one in call.outputs})
        elif call.stack and not (call.view or call.random or call.constant or call.backward):
            read = tuple((one, writes[one.storage]) for one in call.inputs)
            if call.op != READS_ONE and not _is_written(call, step):
                found[call.op, read, call.scalars].append(call)
    lines: dict[Frame, list[Call]] = defaultdict(list)
    for calls in found.values():
        if len(calls) > 1:
            lines[calls[-1].stack[-1]] += calls[1:]
    return [
        step.site("same-value", frame, calls, repeats=len(calls) + 1, detail="again")
        for frame, calls in lines.items()
    ]


# Types and layout.


def _wide(step: Step) -> list[CodeSite]:
    """Work in double precision, by the line that began it."""
    worked = [call for call in step.calls if not call.backward and _is_wide(call.outputs)]
    if not worked:
        return []
    first = next((call for call in worked if call.stack), None)
    if first is None:
        return []
    origins = {one.origin for call in worked for one in call.inputs if _is_wide((one,))}
    fresh = first.op.startswith(FROM_PYTHON)
    detail = MADE if fresh else GIVEN if GIVEN in origins else KEPT if KEPT in origins else MADE
    return [step.site("float64", first.stack[-1], worked, detail=detail)]


def _is_wide(tensors: Iterable[Seen]) -> bool:
    return any(one.dtype in WIDE and one.numel > 1 for one in tensors)


def _casts(step: Step) -> list[CodeSite]:
    """Casts there and back, and of what does not change from step to step."""
    cast_from: dict[int, str] = {}
    lines: dict[tuple[Frame, str], list[Call]] = defaultdict(list)
    for call in step.calls:
        if call.op != CAST or not call.inputs or not call.outputs or call.backward:
            continue
        read, made = call.inputs[0], call.outputs[0]
        if read.dtype == made.dtype:
            continue
        cast_from[made.storage] = read.dtype
        back = cast_from.get(read.storage) == made.dtype
        detail = "back" if back else "kept" if call.constant else ""
        if detail and call.stack:
            lines[call.stack[-1], f"{detail} {read.dtype} {made.dtype}"].append(call)
    return [
        step.site("cast", frame, calls, repeats=len(calls), detail=detail)
        for (frame, detail), calls in lines.items()
    ]


def _strided(step: Step) -> list[CodeSite]:
    """Arguments of the step that an op would read quicker if they were contiguous."""
    lines: Mapping[Frame, list[Call]] = defaultdict(list)
    for call in step.calls:
        as_is, plain = call.strided_ns, call.contiguous_ns
        slower = as_is is not None and plain is not None and as_is > LEAST_SLOWER * plain
        if slower and call.stack:
            lines[call.stack[-1]].append(call)
    found = []
    for frame, calls in lines.items():
        saved = sum((call.strided_ns or 0.0) - (call.contiguous_ns or 0.0) for call in calls)
        shape = next(one.shape for one in calls[0].inputs if one.strided)
        detail = "×".join(map(str, shape))
        found.append(step.site("strided-input", frame, calls, saved_s=saved / 1e9, detail=detail))
    return found


# Source files, as far as causes are named from them: the text of a line, the loop around it.

MOST_BYTES = 4_000_000
"""Of a file that is parsed."""
LONGEST = 100
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Loop:
    """The lines of a loop, its head included."""

    file: str
    first: int
    last: int


@dataclass
class Sources:
    """Files that were parsed, kept for the next question."""

    _loops: dict[str, list[Loop] | None] = field(default_factory=dict)

    def text(self, file: str, line: int) -> str:
        """The line without its indent."""
        found = linecache.getline(file, line).strip()
        return found if len(found) <= LONGEST else f"{found[: LONGEST - 1]}…"

    def loops(self, file: str, line: int) -> list[Loop]:
        """Those around a line, the innermost first."""
        around = [one for one in self._of(file) or () if one.first <= line <= one.last]
        return sorted(around, key=lambda one: one.last - one.first)

    def _of(self, file: str) -> list[Loop] | None:
        if file not in self._loops:
            self._loops[file] = _parsed(file)
        return self._loops[file]


def _parsed(file: str) -> list[Loop] | None:
    """None where there is no source, or none that this Python reads."""
    try:
        if os.path.getsize(file) > MOST_BYTES:
            return None
        with open(file, "rb") as opened:
            tree = ast.parse(opened.read())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    found = []
    for node in ast.walk(tree):
        if isinstance(node, _LOOPS):
            found.append(Loop(file, node.lineno, node.body[-1].end_lineno or node.lineno))
        elif isinstance(node, _COMPREHENSIONS) or _maps(node):
            assert isinstance(node, ast.expr)
            found.append(Loop(file, node.lineno, node.end_lineno or node.lineno))
    return found


def _maps(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "map"

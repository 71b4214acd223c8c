"""Why one arm is faster than another: two ledgers side by side, op by op."""

from __future__ import annotations

from collections.abc import Mapping

from torchstone.explain.passes.report import bare, figure
from torchstone.records import Difference, Ledger, OpChange, OpCost
from torchstone.records.format import count, percent

LEAST_SHARE = 0.005
"""Of the longer step: smaller changes are not told."""
NOTABLE = 0.10
"""An op that both have is told of where it grew or shrank by a tenth."""
MOST_CHANGES = 20
_SAME = 0.02


def difference(base: Ledger, new: Ledger) -> Difference:
    """What changed from `base` to `new`, the largest first."""
    return Difference(base, new, _changes(base, new), tuple(_sentences(base, new)))


def _changes(base: Ledger, new: Ledger) -> tuple[OpChange, ...]:
    before = {op.name: op for op in base.ops}
    after = {op.name: op for op in new.ops}
    fused = _fused_into(new)
    least = LEAST_SHARE * max(base.wall_s, new.wall_s)
    found = []
    for name in {**before, **after}:
        change = _change(name, before, after, fused)
        big = abs(change.after_s - change.before_s) >= least or change.kind == "fused"
        if change.kind and big:
            found.append(change)
    ordered = sorted(found, key=lambda one: (-abs(one.after_s - one.before_s), one.name))
    return tuple(ordered[:MOST_CHANGES])


def _change(
    name: str,
    before: Mapping[str, OpCost],
    after: Mapping[str, OpCost],
    fused: Mapping[str, tuple[str, ...]],
) -> OpChange:
    old, new = before.get(name), after.get(name)
    was = old.kernel_s + old.front_s if old else 0.0
    now = new.kernel_s + new.front_s if new else 0.0
    into = fused.get(_word(name), ())
    fewer = old is not None and (new is None or new.calls < old.calls)
    if old is None:
        kind = "appeared"
    elif into and fewer and not old.generated:
        kind = "fused"
    elif new is None:
        kind = "vanished"
    elif now > was * (1 + NOTABLE):
        kind = "grew"
    elif now < was * (1 - NOTABLE):
        kind = "shrank"
    else:
        kind = ""
    return OpChange(
        name,
        kind,
        was,
        now,
        old.calls if old else 0.0,
        new.calls if new else 0.0,
        into if kind == "fused" else (),
    )


def _fused_into(new: Ledger) -> dict[str, tuple[str, ...]]:
    """By the op's bare name: the kernels that stand for it."""
    found: dict[str, tuple[str, ...]] = {}
    for op in new.ops:
        for name in _original_ops(op):
            found[name] = (*found.get(name, ()), op.name)
    return found


def _original_ops(op: OpCost) -> set[str]:
    """`cpp_fused_add_native_layer_norm_0` says `add`, `native`, `layer`, `norm`: names of ops may
    have underscores, so every run of words may be one."""
    words = [bare(word) for word in op.ops]
    return {
        "_".join(words[start:end])
        for start in range(len(words))
        for end in range(start + 1, min(len(words), start + 5) + 1)
    }


def _word(name: str) -> str:
    """The op's name as kernels' names have it: `aten::add_` is `add`."""
    return bare(name).strip("_")


def _sentences(base: Ledger, new: Ledger) -> list[str]:
    """Where the difference comes from, the largest part first."""
    gap = (new.wall_s - base.wall_s) / base.wall_s
    room = max(_SAME, _unsure(base, new))
    if abs(gap) <= room:
        told = [f"No difference in time beyond the {room:.0%} by which the rounds vary."]
    else:
        word = "shorter" if gap < 0 else "longer"
        told = [
            f"The step is {abs(gap):.0%} {word} under {new.arm.name} (give or take {room:.0%})."
        ]
    told.append(_in_turns(base, new))
    names = {line.name: line.title for line in (*base.lines, *new.lines) if line.level <= 3}
    parts = [
        (_seconds(new, name) - _seconds(base, name), title)
        for name, title in names.items()
        if name != "rest"
    ]
    for change, title in sorted(parts, key=lambda part: -abs(part[0]))[:3]:
        if abs(change) >= LEAST_SHARE * base.wall_s:
            word = "less" if change < 0 else "more"
            share = percent(abs(change) / base.wall_s)
            told.append(f"{title[0].upper()}{title[1:]}: {share} of the step {word}.")
    return [*told, *_compiled_sentences(base, new)]


def _in_turns(base: Ledger, new: Ledger) -> str:
    """How to have it decided. `bench` has eager for its baseline."""
    said = "They were looked at one after the other, not in turns: "
    if base.arm.is_eager:
        return f"{said}which is faster is for `torchstone bench --vs {new.arm.variant}` to decide."
    others = [one.arm.variant for one in (base, new) if not one.arm.is_eager]
    flags = " ".join(f"--vs {variant}" for variant in others)
    return f"{said}`torchstone bench {flags}` takes turns, each against eager."


def _compiled_sentences(base: Ledger, new: Ledger) -> list[str]:
    """Kernels and graph breaks, beside those of the other where it is compiled too."""
    told = []
    now, before = (sum(op.generated for op in one.ops) for one in (new, base))
    if base.arm.is_eager:
        if now:
            told.append(f"{_kernels(now)} for ops that ran one by one.")
    elif now or before:
        told.append(
            f"{now} generated kernel{'' if now == 1 else 's'} under {new.arm.name}, {before} under "
            f"{base.arm.name}."
        )
    breaks = f"Compiled code is left at {count(len(new.breaks), 'place')} (graph breaks)"
    if base.breaks:
        told.append(f"{breaks}, under {base.arm.name} at {count(len(base.breaks), 'place')}.")
    elif new.breaks:
        told.append(f"{breaks}.")
    return told


def _kernels(count: int) -> str:
    return "1 generated kernel stands" if count == 1 else f"{count} generated kernels stand"


def _unsure(base: Ledger, new: Ledger) -> float:
    """How far the ratio of the two may be off, by how much each one's rounds vary."""
    return figure(base, "wall_spread") + figure(new, "wall_spread") * new.wall_s / base.wall_s


def _seconds(ledger: Ledger, name: str) -> float:
    line = ledger.line(name)
    return line.seconds if line else 0.0

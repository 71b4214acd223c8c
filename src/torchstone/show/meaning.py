"""What the figures of a case mean, in a sentence: for who decides, not for who measures."""

from __future__ import annotations

from torchstone.records import CaseFigures, Outcome, Verdict
from torchstone.show.budget import RUN, budget_advice
from torchstone.show.rows import LEAST_COMPILE_NS
from torchstone.show.units import format_percent, format_seconds

WORTH_SAYING = 0.05
"""Memory ratios nearer to 1 than this are not mentioned."""
MANY_CALLS = 1e9
"""Beyond so many calls compiling never pays off in practice."""


def meaning(case: CaseFigures, *, ascii_only: bool = False) -> str:
    """One sentence, or none where the case has no verdict."""
    if case.outcome is not Outcome.OK or case.verdict is None or not case.speedup:
        return ""
    parts = [_speed(case), _times(case, ascii_only), _pays_off(case, ascii_only), _memory(case)]
    return "; ".join(part for part in parts if part) + "."


def _speed(case: CaseFigures) -> str:
    """What the interval says of the variant; per cent of time a call."""
    low, high = case.interval or (0.0, 0.0)
    name, speedup = case.key.variant, case.speedup or 1.0
    if case.verdict is Verdict.FASTER:
        return f"{name} takes {_less(speedup)} less time a call"
    if case.verdict is Verdict.SLOWER:
        return f"{name} takes {_more(speedup)} more time a call: leave this model eager"
    if case.verdict is Verdict.SAME:
        return f"{name} makes no difference beyond {format_percent(case.margin)}"
    if case.verdict is Verdict.NOT_SLOWER:
        return f"{name} is not slower, and saves at most {_less(high)}"
    if case.verdict is Verdict.NOT_FASTER:
        return f"{name} is not faster, and costs at most {_more(low)}"
    open_ends = f"{name}: anything from {_more(low)} more time to {_less(high)} less"
    advice = budget_advice(case.deciding_budget_s, case.margin, RUN).rstrip(".")
    return "; ".join(part for part in (open_ends, advice) if part)


def _less(speedup: float) -> str:
    """How much of a call's time is saved."""
    return format_percent(max(0.0, 1.0 - 1.0 / speedup)) if speedup > 0 else "nothing"


def _more(speedup: float) -> str:
    """How much longer a call takes."""
    return format_percent(max(0.0, 1.0 / speedup - 1.0)) if speedup > 0 else "any amount"


def _times(case: CaseFigures, ascii_only: bool) -> str:
    if not case.base_ns or not case.new_ns:
        return ""
    base, new = (format_seconds(ns / 1e9, 3, ascii_only=ascii_only) for ns in _both(case))
    return f"{base} to {new}"


def _both(case: CaseFigures) -> tuple[float, float]:
    return case.base_ns or 0.0, case.new_ns or 0.0


def _pays_off(case: CaseFigures, ascii_only: bool) -> str:
    """After how many calls what is saved makes up for compiling; only of what is faster."""
    base, new = _both(case)
    cold = case.compile_cold_ns or 0
    if case.verdict is not Verdict.FASTER or cold < LEAST_COMPILE_NS or base <= new:
        return ""
    calls = cold / (base - new)
    if calls > MANY_CALLS:
        return ""
    took = format_seconds(cold / 1e9, 3, ascii_only=ascii_only)
    return f"{took} of compiling pay off after {_rounded(calls):,} calls"


def _rounded(calls: float) -> int:
    """Two digits: the ratio it comes from is known no better."""
    step = int(10 ** max(0, len(str(int(calls))) - 2))
    return max(1, round(calls / step) * step)


def _memory(case: CaseFigures) -> str:
    """Of tensors at the step's peak."""
    ratio = case.memory_ratio
    if ratio is None or not ratio > 0.0 or abs(1.0 - 1.0 / ratio) < WORTH_SAYING:
        return ""
    if ratio > 1.0:
        return f"tensors need {format_percent(1.0 - 1.0 / ratio)} less memory"
    return f"tensors need {1.0 / ratio:.2g} times the memory"

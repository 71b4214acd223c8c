"""Whether a page stays fluid: the longest time between two frames while somebody uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from aa_report import table

MOST_FRAME_S = 0.1
"""The aim: an answer that comes later than this is felt as a delay (Google's RAIL model)."""
SETTLE_MS = 600
"""After an action, for what it moves: a zoom glides for a quarter of a second."""
ROW = 22
"""Pixels of a row of the icicle."""
IDLE = "nothing"
RECORD = """() => {
  const gaps = [];
  let last = performance.now();
  const tick = () => {
    const now = performance.now();
    gaps.push(now - last);
    last = now;
    if (window.viewGaps === gaps) requestAnimationFrame(tick);
  };
  window.viewGaps = gaps;
  requestAnimationFrame(tick);
}"""
RECORDED = """() => {
  const gaps = window.viewGaps;
  window.viewGaps = null;
  return gaps;
}"""


@dataclass(frozen=True)
class Fluid:
    """One action on one page: the longest frame of each round."""

    profile: str
    action: str
    longest_s: tuple[float, ...]

    @property
    def typical_s(self) -> float:
        return median(self.longest_s)


def use(page: Any) -> dict[str, float]:
    """Do everything once on the call tree that is shown; the longest frame of each action."""
    return {name: _longest(page, action) for name, action in ACTIONS.items()}


def _longest(page: Any, action: Callable[[Any], None]) -> float:
    page.evaluate(RECORD)
    action(page)
    page.wait_for_timeout(SETTLE_MS)
    gaps: list[float] = page.evaluate(RECORDED)
    if not gaps:
        raise RuntimeError("no frame was drawn")
    return max(gaps) / 1000


def _canvas(page: Any) -> dict[str, float]:
    found: dict[str, float] = page.locator("#panel-tree canvas").first.bounding_box()
    return found


def _zoom(page: Any) -> None:
    box = _canvas(page)
    page.mouse.click(box["x"] + box["width"] / 4, box["y"] + 3.5 * ROW)
    if page.locator("#panel-tree .crumbs button").count() < 2:
        raise RuntimeError("the click did not zoom")


def _reset(page: Any) -> None:
    page.locator("#panel-tree .reset").first.click()


def _search(page: Any) -> None:
    """Letter by letter, as people do; most functions match at first."""
    page.locator("#panel-tree .search").first.press_sequentially("function_49")
    if "49" not in page.locator("#panel-tree .search").first.input_value():
        raise RuntimeError("nothing was searched for")


def _hover(page: Any) -> None:
    box = _canvas(page)
    for share in (0.1, 0.9):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 6.5 * ROW, steps=15)


ACTIONS: dict[str, Callable[[Any], None]] = {
    IDLE: lambda page: None,
    "zoom": _zoom,
    "reset": _reset,
    "hover": _hover,
    "search": _search,
}
"""In this order. The first is the control: what the machine makes of a page at rest."""


def gathered(profile: str, rounds: list[dict[str, float]]) -> list[Fluid]:
    """TurnScheduler of `use`, by action."""
    return [Fluid(profile, name, tuple(one[name] for one in rounds)) for name in ACTIONS]


def report(found: list[Fluid]) -> str:
    """The figures as a table."""
    head = ("profile", "while", "longest frame, median", "worst")
    rows = [(one.profile, one.action, _ms(one.typical_s), _ms(max(one.longest_s))) for one in found]
    return table(head, rows, False)


def aim(found: list[Fluid]) -> str:
    """Whether every action stays below the aim, in a sentence."""
    slowest = max((one for one in found if one.action != IDLE), key=lambda one: one.typical_s)
    rest = next(one for one in found if one.action == IDLE)
    met = "met" if slowest.typical_s < MOST_FRAME_S else "missed"
    return (
        f"aim: no frame of {slowest.profile} longer than {_ms(MOST_FRAME_S)} (median): "
        f"{slowest.action} {_ms(slowest.typical_s)}, {met}; at rest {_ms(rest.typical_s)}"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"

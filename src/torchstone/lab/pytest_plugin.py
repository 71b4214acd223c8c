"""A pytest fixture for speed: `torchstone.assert_not_slower(new, base, margin=0.03)`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torchstone.records import Comparison, Result

DOUBTS = ("warn", "fail", "pass")


class TorchstoneWarning(UserWarning):
    """The data could not tell; the test neither proves nor denies."""


class SpeedAssertions:
    """What the `torchstone` fixture offers. Targets are functions of the test file, or strings."""

    def compare(self, base: Any, new: Any, **options: Any) -> Result:
        """Measure both; returns the whole result."""
        from torchstone.lab.api import compare

        options.setdefault("budget", 10.0)
        return compare(base, new, **options)

    def assert_not_slower(
        self, new: Any, base: Any, margin: float = 0.03, on_doubt: str = "warn", **options: Any
    ) -> Result:
        """Fail if `new` is proven slower than `base` by more than `margin`, or does not work.

        Verdicts that exclude it (`faster`, `same`, `not slower`) pass, and so does a slow-down all
        of whose interval lies within the margin. Otherwise nothing is proven: `on_doubt` says
        whether to `warn`, `fail` or `pass`.
        """
        __tracebackhide__ = True
        if on_doubt not in DOUBTS:
            raise ValueError(f"on_doubt is one of {', '.join(DOUBTS)}, not {on_doubt!r}")
        result = self.compare(base, new, margin=margin, **options)
        for arm in result.arms:
            if arm.outcome.value != "ok":
                pytest.fail(f"{arm.arm.name}: {arm.outcome.value}: {arm.detail.message}")
        comparison = result.comparisons[0]
        interval = comparison.interval
        if interval is None:
            pytest.fail(f"no comparison: {comparison.reason}")
        verdict, slower = comparison.verdict, comparison.verdict.value == "slower"
        if slower and interval[0] > 1 + margin:
            pytest.fail(f"{_words(comparison)}: slower by more than {margin:.1%}")
        if not (verdict.excludes_slower or (slower and interval[1] <= 1 + margin)):
            doubt = f"{_words(comparison)}: {_doubt(comparison)}"
            if on_doubt == "fail":
                pytest.fail(doubt)
            if on_doubt == "warn":
                warnings.warn(TorchstoneWarning(doubt), stacklevel=2)
        return result


def _doubt(comparison: Comparison) -> str:
    """What is open, and what would help."""
    from torchstone.show.evidence import budget_advice

    verdict, margin = comparison.verdict.value, comparison.margin
    known = "" if verdict == "cannot tell" else f"{verdict}, but "
    said = f"{known}cannot tell whether that is more than {margin:.1%}"
    advice = budget_advice(comparison.deciding_budget_s, margin, "budget=")
    return f"{said}. {advice}" if advice else said


def _words(comparison: Comparison) -> str:
    ratio, (low, high) = comparison.time_ratio or 0.0, comparison.interval or (0.0, 0.0)
    return (
        f"{comparison.new} takes {ratio:.3f}x the time of {comparison.base} [{low:.3f}, {high:.3f}]"
    )


@pytest.fixture
def torchstone() -> SpeedAssertions:
    """Assertions about speed, measured in fresh processes of their own."""
    return SpeedAssertions()

"""Measuring errors of cases, and how they add up: what means and differences both are made from.

A case's error is the standard error of its log speed-up with its degrees of freedom. Errors of
different cases, and of one case in two runs, are taken as independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torchstone.records import CaseFigures
from torchstone.stats.distributions import student_t_quantile

CASE_ALPHA = 0.05
"""What a case's own interval may err by, all its looks taken together."""

LEAST_FREEDOM = 1.0
"""Two processes have one degree of freedom. A record that says less was not made by measuring."""

FREEDOM_STEP = 0.125
"""Degrees of freedom are rounded down to multiples of this, which makes a 95 % interval wider by at
most 2.6 % at 3 of them and by 0.6 % at 6. A suite then needs a few dozen quantiles instead of one
for each case, and each takes longer than everything else that is done for the case."""


class Error(NamedTuple):
    """A standard error and its degrees of freedom."""

    size: float
    freedom: float

    def half_width(self, level: float) -> float:
        """Half the interval at that level: Student's t."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie in (0, 1), got {level}")
        if self.size == 0.0:
            return 0.0
        return student_t_quantile(0.5 + 0.5 * level, self.freedom) * self.size


def known_error(case: CaseFigures) -> Error | None:
    """Standard error of the log speed-up and its degrees of freedom, where both are known."""
    error, freedom = case.log_error, case.log_freedom
    if error is None or freedom is None:
        return None
    if not (0.0 <= error < math.inf and freedom >= LEAST_FREEDOM):
        return None
    return Error(error, freedom)


def promised_error(case: CaseFigures) -> Error | None:
    """The error that the case's own interval promises: wider where it was looked at earlier."""
    known = known_error(case)
    alpha = alpha_left(case)
    if known is None or alpha == CASE_ALPHA:
        return known
    promised = student_t_quantile(1.0 - 0.5 * alpha, known.freedom)
    usual = student_t_quantile(1.0 - 0.5 * CASE_ALPHA, known.freedom)
    return Error(known.size * promised / usual, known.freedom)


def alpha_left(case: CaseFigures) -> float:
    """What was left to err by at the look at which the case stopped; all of it, if one look."""
    return min(CASE_ALPHA, 1.0 - case.level) if 0.0 < case.level < 1.0 else CASE_ALPHA


def error_of_sum(errors: Sequence[Error]) -> Error:
    """Of a sum or difference of independent numbers: Welch and Satterthwaite's freedom."""
    largest = max(error.size for error in errors)
    if largest == 0.0:
        return Error(0.0, math.inf)
    # Relative to the largest, so that fourth powers of small errors do not vanish.
    squares = [((error.size / largest) ** 2, error.freedom) for error in errors]
    total = math.fsum(square for square, _ in squares)
    spread = math.fsum(square * square / freedom for square, freedom in squares)
    freedom = total * total / spread if spread > 0.0 else math.inf
    return Error(largest * math.sqrt(total), freedom)


def error_of_mean(errors: Sequence[Error]) -> Error:
    """Of the arithmetic mean of independent numbers."""
    total = error_of_sum(errors)
    return Error(total.size / len(errors), total.freedom)


def rounded_down(error: Error) -> Error:
    """The same with its degrees of freedom on the grid of `FREEDOM_STEP`: never narrower."""
    steps = error.freedom / FREEDOM_STEP
    if not 1.0 <= steps < math.inf:
        return error
    # A hair is added: 4 + 4 degrees may come out as 7.999999 and are meant to be 8.
    return Error(error.size, math.floor(steps * (1.0 + 1e-9)) * FREEDOM_STEP)


def logs(values: Iterable[float | None]) -> tuple[float, ...]:
    """The logarithms of those that have one."""
    return tuple(math.log(v) for v in values if v is not None and 0.0 < v < math.inf)


def log_speedup(case: CaseFigures) -> float | None:
    """None where there is no speed-up to take the log of."""
    value = case.speedup
    return math.log(value) if value is not None and 0.0 < value < math.inf else None

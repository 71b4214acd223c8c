"""The few distributions that intervals need: Student t, by way of beta, and normal.

Written here so that nobody has to install scipy; the tests hold them against scipy to 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from statistics import NormalDist

from torchstone.stats.process import Floats, np

_NORMAL = NormalDist()
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_TINY = 1e-300
_EPS = 1e-16
_MAX_TERMS = 100_000
_STIRLING_FROM = 15.0
"""Below this log-gamma is small enough to lose no digits; above it the series' first left-out
term, x**-13 / 156, is under 1e-17."""
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def normal_cdf(x: float) -> float:
    """P(Z <= x) for a standard normal Z."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def normal_quantile(p: float) -> float:
    """The x for which P(Z <= x) = p."""
    _check_probability(p)
    if p in (0.0, 1.0):
        return math.inf if p == 1.0 else -math.inf
    return _NORMAL.inv_cdf(p)


def student_t_cdf(t: float, df: float) -> float:
    """P(T <= t) with `df` degrees of freedom (`inf` gives the normal)."""
    _check_df(df)
    if math.isinf(df):
        return normal_cdf(t)
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    ratio = abs(t) / math.sqrt(df)
    x = 1.0 / (1.0 + ratio * ratio)
    y = ratio * ratio * x if ratio < 1.0 else 1.0 - x
    tail, centre = _beta_tails(0.5 * df, 0.5, x, y)
    return 0.5 * tail if t < 0 else 0.5 + 0.5 * centre


def two_sided(centre: float, std_error: float, df: float) -> float:
    """The two-sided p-value of "the log ratio is 0" by Student's t."""
    if centre == 0.0:
        return 1.0
    if std_error == 0.0:
        return 0.0
    return 2.0 * student_t_cdf(-abs(centre) / std_error, df)


@lru_cache(maxsize=1024)
def student_t_quantile(p: float, df: float) -> float:
    """The t for which P(T <= t) = p with `df` degrees of freedom."""
    _check_probability(p)
    _check_df(df)
    if p in (0.0, 1.0):
        return math.inf if p == 1.0 else -math.inf
    if p == 0.5:
        return 0.0
    if math.isinf(df):
        return normal_quantile(p)
    # df / (df + T**2) is Beta(df / 2, 1 / 2); its logit u gives |t| = sqrt(df * exp(-u)).
    tail = p if p < 0.5 else 1.0 - p
    u = _beta_logit_quantile(0.5 * df, 0.5, 2.0 * tail, 2.0 * abs(p - 0.5))
    size = math.sqrt(df) * math.exp(-0.5 * u)
    return -size if p < 0.5 else size


def exp_or_inf(value: float) -> float:
    """exp(value); infinity where that is too large for a float."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _beta_tails(a: float, b: float, x: float, y: float) -> tuple[float, float]:
    """(I_x(a, b), 1 - I_x(a, b)), each exact to its own size; `y` is 1 - x."""
    if x <= 0.0:
        return 0.0, 1.0
    if y <= 0.0:
        return 1.0, 0.0
    front = _beta_front(a, b, x, y)
    if x * (a + b + 2.0) < a + 1.0:
        lower = min(1.0, front * _beta_fraction(a, b, x) / a)
        return lower, 1.0 - lower
    upper = min(1.0, front * _beta_fraction(b, a, y) / b)
    return 1.0 - upper, upper


def _beta_front(a: float, b: float, x: float, y: float) -> float:
    """x**a * y**b / B(a, b), by deviances: differences of large log-gammas lose digits."""
    n = a + b
    log = (
        _stirling_error(n)
        - _stirling_error(a)
        - _stirling_error(b)
        - _deviance(a, n * x)
        - _deviance(b, n * y)
    )
    return math.sqrt(a * b / (2.0 * math.pi * n)) * math.exp(log)


def _stirling_error(x: float) -> float:
    """log(Gamma(x + 1)) minus Stirling's formula."""
    if x < _STIRLING_FROM:
        return math.lgamma(x + 1.0) - (x + 0.5) * math.log(x) + x - _HALF_LOG_TWO_PI
    square = 1.0 / (x * x)
    total = 0.0
    for coefficient in reversed(_STIRLING):
        total = total * square + coefficient
    return total / x


def _deviance(x: float, mean: float) -> float:
    """x * log(x / mean) + mean - x without cancellation where the two are close."""
    difference = x - mean
    if abs(difference) >= 0.1 * (x + mean):
        return x * (math.log(x) - math.log(mean)) - difference if mean > 0.0 else math.inf
    v = difference / (x + mean)
    total, term, power = difference * v, 0.0, 2.0 * x * v
    for j in range(1, 1000):
        power *= v * v
        term = power / (2 * j + 1)
        if total + term == total:
            break
        total += term
    return total


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method.

    Nearly all the time that a comparison of runs spends in p-values is spent in this loop, so it
    calls nothing.
    """
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    total = d = 1.0 / (_TINY if -_TINY <= d <= _TINY else d)
    for m in range(1, _MAX_TERMS):
        place = a + 2 * m
        even = m * (b - m) * x / ((place - 1.0) * place)
        c, d = 1.0 + even / c, 1.0 + even * d
        c = _TINY if -_TINY <= c <= _TINY else c
        d = 1.0 / (_TINY if -_TINY <= d <= _TINY else d)
        total *= d * c
        odd = -(a + m) * (a + b + m) * x / (place * (place + 1.0))
        c, d = 1.0 + odd / c, 1.0 + odd * d
        c = _TINY if -_TINY <= c <= _TINY else c
        d = 1.0 / (_TINY if -_TINY <= d <= _TINY else d)
        change = d * c
        total *= change
        if abs(change - 1.0) <= 3.0 * _EPS:
            break
    return total


def _beta_logit_quantile(a: float, b: float, p: float, q: float) -> float:
    """log(x / (1 - x)) at the p-quantile x of Beta(a, b); `q` is 1 - p.

    The logit keeps both ends exact. Newton on the log of the smaller tail, kept inside a
    bracket: both tails are log-concave in the logit, so it cannot run away for long.
    """
    lower = p <= q
    target = math.log(p if lower else q)

    def gap(u: float) -> tuple[float, float]:
        x, y = _logistic(u), _logistic(-u)
        value = _beta_tails(a, b, x, y)[0 if lower else 1]
        if value <= 0.0:
            return (-math.inf if lower else math.inf), 0.0
        slope = _beta_front(a, b, x, y) / value
        return (math.log(value) - target if lower else target - math.log(value)), slope

    low, high = _bracket(gap, math.log(a / b))
    return _newton(gap, low, high)


def _bracket(gap: Callable[[float], tuple[float, float]], start: float) -> tuple[float, float]:
    step, low, high = 1.0, start, start
    while gap(low)[0] > 0.0 and low > -1e5:
        low, step = low - step, step * 2.0
    step = 1.0
    while gap(high)[0] < 0.0 and high < 1e5:
        high, step = high + step, step * 2.0
    return low, high


def _newton(gap: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    u = 0.5 * (low + high)
    for _ in range(200):
        value, slope = gap(u)
        if value == 0.0:
            return u
        low, high = (u, high) if value < 0.0 else (low, u)
        new = u - value / slope if slope > 0.0 and math.isfinite(value) else math.nan
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - u) <= 1e-15 * max(1.0, abs(u)):
            return new
        u = new
    return u


def _logistic(u: float) -> float:
    if u >= 0.0:
        return 1.0 / (1.0 + math.exp(-u))
    return math.exp(u) / (1.0 + math.exp(u))


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"a probability must lie in [0, 1], got {p}")


def _check_df(df: float) -> None:
    if not df > 0.0:
        raise ValueError(f"the degrees of freedom must be positive, got {df}")


# Order statistics of fewer draws: what a larger sample's floor would be with n samples only.
#
# A minimum falls as n grows, so an arm with more samples looks faster than it is. Instead of
# throwing samples away at random, these functions give the exact mean over all ways to keep n.

KEPT_SIZE = 4096
"""Weights of more samples are made again each time: a thousand of them would take gigabytes."""


def expected_low_mean(samples: Floats, n: int, lowest: int) -> float:
    """The mean, over all choices of n out of the samples, of the mean of the `lowest` smallest.

    The samples may be in any order.
    """
    weights = _low_weights(samples.size, n, lowest)
    return float(weights @ smallest(samples, weights.size))


def smallest(samples: Floats, count: int) -> Floats:
    """The `count` smallest in order; of many samples quicker than to sort them all."""
    if count < samples.size:
        samples = np.partition(samples, count - 1)[:count]
    return np.asarray(np.sort(samples))


def _kept_if_small(make: Callable[..., Floats]) -> Callable[..., Floats]:
    """Remember weights of small samples: they are asked for again and again."""
    kept = lru_cache(maxsize=1024)(make)

    @wraps(make)
    def weights(size: int, *rest: int) -> Floats:
        return kept(size, *rest) if size <= KEPT_SIZE else make(size, *rest)

    return weights


@_kept_if_small
def rank_weights(size: int, n: int, rank: int) -> Floats:
    """P(the i-th smallest of all is the rank-th of n kept)."""
    _check(size, n, rank)
    # Of the i-1 smaller ones rank-1 are kept, of the size-i larger ones n-rank: none but these i.
    i = np.arange(rank, size - n + rank, dtype=np.float64)
    # The ratio of each probability to the one before it falls with i and passes 1 at the highest.
    # From there outwards the products only shrink, so that they neither overflow nor drift.
    steps = i / (i - rank + 1.0) * ((size - n + rank - i) / (size - i))
    top = int(np.count_nonzero(steps >= 1.0))
    below = np.cumprod(1.0 / steps[:top][::-1])[::-1]
    shares = np.concatenate([below, [1.0], np.cumprod(steps[top:])])
    weights = np.zeros(size)
    weights[rank - 1 : size - n + rank] = shares / shares.sum()
    return weights


@_kept_if_small
def _low_weights(size: int, n: int, lowest: int) -> Floats:
    """P(the i-th smallest of all is among the `lowest` smallest of n kept), over `lowest`.

    Only of the first ones, up to where it is no more than a float can tell from 0. The i-th is
    kept (n / size), and of the n-1 others kept fewer than `lowest` are below it: the lowest-th of
    them is above it. So one rank's weights are summed up from the far end.
    """
    _check(size, n, lowest)
    above = np.ones(size)
    if lowest < n:
        ranked = rank_weights(size - 1, n - 1, lowest)
        above = np.cumsum(ranked[::-1])[::-1]
    return np.asarray(n / size / lowest * above[: np.count_nonzero(above)], dtype=np.float64)


def _check(size: int, n: int, rank: int) -> None:
    if not 1 <= rank <= n <= size:
        raise ValueError(f"need 1 <= rank <= n <= size, got {rank}, {n}, {size}")

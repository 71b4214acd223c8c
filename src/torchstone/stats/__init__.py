"""Pure maths on numpy: from raw samples to ratios, intervals, stopping and verdicts.

Holds: distributions, estimators of one process, ratio intervals over processes, preset looks,
verdicts with their corrections, figures over many comparisons and over a suite's cases, and
shares of calibrated roofs.
Touches: nothing; every function depends on its arguments alone. Imports only `records` and numpy.
"""

from torchstone.stats.compare import COMPARABLE, DECIDING_ESTIMATOR, compare, compare_all
from torchstone.stats.distributions import (
    beta_quantile,
    clopper_pearson,
    normal_cdf,
    normal_quantile,
    regularised_beta,
    student_t_cdf,
    student_t_quantile,
)
from torchstone.stats.estimators import (
    ESTIMATORS,
    FLOOR_ESTIMATOR,
    TYPICAL_ESTIMATOR,
    Estimator,
    find_estimator,
)
from torchstone.stats.order import expected_low_mean, expected_minimum, expected_order_statistic
from torchstone.stats.process import ProcessData, process_data, replicates_with_samples
from torchstone.stats.ratio import (
    Absolute,
    LogFit,
    absolute,
    as_estimate,
    fit_ratio,
    fit_ratios,
    ratio,
)
from torchstone.stats.roofline import (
    COVERAGE_NEEDED,
    Utilisation,
    achieved,
    compute_roof,
    dtype_of,
    floor_seconds,
    least_roof,
    threads_of,
    utilisation,
)
from torchstone.stats.sequential import alpha_at, is_precise, looks, stop
from torchstone.stats.suite import (
    FALSE_DISCOVERY_RATE,
    geometric_mean_speedup,
    mean_compile_cold,
    mean_compile_warm,
    mean_memory_ratio,
    mean_step_memory_ratio,
    p_value,
    pass_rate,
    passing,
    summarise,
    verdicts,
)
from torchstone.stats.summary import (
    Interval,
    RankTest,
    benjamini_hochberg,
    geometric_mean,
    holm,
    mann_whitney,
)

DEFINITION = 1
"""The version of every definition in this room; figures of two versions are never mixed."""

__all__ = [
    "COMPARABLE",
    "COVERAGE_NEEDED",
    "DECIDING_ESTIMATOR",
    "DEFINITION",
    "ESTIMATORS",
    "FALSE_DISCOVERY_RATE",
    "FLOOR_ESTIMATOR",
    "TYPICAL_ESTIMATOR",
    "Absolute",
    "Estimator",
    "Interval",
    "LogFit",
    "ProcessData",
    "RankTest",
    "Utilisation",
    "absolute",
    "achieved",
    "alpha_at",
    "as_estimate",
    "benjamini_hochberg",
    "beta_quantile",
    "clopper_pearson",
    "compare",
    "compare_all",
    "compute_roof",
    "dtype_of",
    "expected_low_mean",
    "expected_minimum",
    "expected_order_statistic",
    "find_estimator",
    "fit_ratio",
    "fit_ratios",
    "floor_seconds",
    "geometric_mean",
    "geometric_mean_speedup",
    "holm",
    "is_precise",
    "least_roof",
    "looks",
    "mann_whitney",
    "mean_compile_cold",
    "mean_compile_warm",
    "mean_memory_ratio",
    "mean_step_memory_ratio",
    "normal_cdf",
    "normal_quantile",
    "p_value",
    "pass_rate",
    "passing",
    "process_data",
    "ratio",
    "regularised_beta",
    "replicates_with_samples",
    "stop",
    "student_t_cdf",
    "student_t_quantile",
    "summarise",
    "threads_of",
    "utilisation",
    "verdicts",
]

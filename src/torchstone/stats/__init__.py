"""Pure maths on numpy: from raw samples to ratios, intervals, stopping and verdicts.

Holds: distributions, estimators of one process, ratio intervals over processes, preset looks,
verdicts with their corrections, figures over many comparisons and over a suite's cases, changes
between two runs, and shares of calibrated roofs.
Touches: nothing; every function depends on its arguments alone. Imports only `records` and numpy,
the latter when samples are looked at: stored figures need none.
"""

from torchstone.stats.changes import (
    Change,
    Judged,
    Rules,
    change_of,
    judge,
    mean_change,
    mean_threshold,
    threshold,
)
from torchstone.stats.compare import (
    COMPARABLE,
    DECIDING_ESTIMATOR,
    compare,
    compare_all,
    compare_sessions,
)
from torchstone.stats.corrections import benjamini_hochberg, holm
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
from torchstone.stats.sides import (
    LEAST_COMPILE_CHANGE,
    LEAST_COMPILE_NS,
    LEAST_MEMORY_CHANGE,
    CostThresholds,
    Drift,
    cost_thresholds,
    drift_of,
    side_moved,
)
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
    geometric_mean,
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
    "LEAST_COMPILE_CHANGE",
    "LEAST_COMPILE_NS",
    "LEAST_MEMORY_CHANGE",
    "TYPICAL_ESTIMATOR",
    "Absolute",
    "Change",
    "CostThresholds",
    "Drift",
    "Estimator",
    "Interval",
    "Judged",
    "LogFit",
    "ProcessData",
    "RankTest",
    "Rules",
    "Utilisation",
    "absolute",
    "achieved",
    "alpha_at",
    "as_estimate",
    "benjamini_hochberg",
    "beta_quantile",
    "change_of",
    "clopper_pearson",
    "compare",
    "compare_all",
    "compare_sessions",
    "compute_roof",
    "cost_thresholds",
    "drift_of",
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
    "judge",
    "least_roof",
    "looks",
    "mann_whitney",
    "mean_change",
    "mean_compile_cold",
    "mean_compile_warm",
    "mean_memory_ratio",
    "mean_step_memory_ratio",
    "mean_threshold",
    "normal_cdf",
    "normal_quantile",
    "p_value",
    "pass_rate",
    "passing",
    "process_data",
    "ratio",
    "regularised_beta",
    "replicates_with_samples",
    "side_moved",
    "stop",
    "student_t_cdf",
    "student_t_quantile",
    "summarise",
    "threads_of",
    "threshold",
    "utilisation",
    "verdicts",
]

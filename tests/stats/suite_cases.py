"""Made-up cases of a suite, with known truth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from torchstone.records import CaseKey, CaseMetrics, Outcome, Verdict

MIRROR = {
    Verdict.FASTER: Verdict.SLOWER,
    Verdict.SLOWER: Verdict.FASTER,
    Verdict.SAME: Verdict.SAME,
    Verdict.NOT_SLOWER: Verdict.NOT_FASTER,
    Verdict.NOT_FASTER: Verdict.NOT_SLOWER,
    Verdict.CANNOT_TELL: Verdict.CANNOT_TELL,
}
"""What becomes of a verdict when base and new change places."""


def case(
    model: str = "m",
    log_speedup: float | None = 0.1,
    error: float | None = 0.01,
    freedom: float | None = 3.0,
    outcome: Outcome = Outcome.OK,
    verdict: Verdict | None = Verdict.FASTER,
    **changes: object,
) -> CaseMetrics:
    """A case; keyword arguments change parts of its key, or else its figures."""
    key = CaseKey("timm", model, "small", "inference", "fp32", "inductor")
    parts = {name: changes.pop(name) for name in list(changes) if hasattr(key, name)}
    made = CaseMetrics(
        key=replace(key, **parts),  # type: ignore[arg-type]
        outcome=outcome,
        speedup=None if log_speedup is None else math.exp(log_speedup),
        log_error=error,
        log_freedom=freedom,
        verdict=verdict,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def many(
    means: np.ndarray, sems: np.ndarray, freedom: int, verdicts: list[Verdict] | None = None
) -> list[CaseMetrics]:
    """Cases made quickly, because simulations need thousands."""
    key, ok = case().key, Outcome.OK
    told = verdicts or [Verdict.CANNOT_TELL] * len(means)
    rows = zip(np.exp(means).tolist(), sems.tolist(), told, strict=True)
    return [
        CaseMetrics(key, ok, speedup=x, log_error=s, log_freedom=float(freedom), verdict=v)
        for x, s, v in rows
    ]


logs = st.floats(-2.0, 2.0)
errors = st.floats(1e-6, 0.5)
freedoms = st.floats(1.0, 40.0)
measured = st.builds(
    lambda log, error, freedom, verdict: case(
        log_speedup=log, error=error, freedom=freedom, verdict=verdict
    ),
    logs,
    errors,
    freedoms,
    st.sampled_from(Verdict),
)
anything = st.builds(
    lambda outcome, log, error, freedom, verdict, cold, peaks: case(
        outcome=outcome,
        log_speedup=log,
        error=error,
        freedom=freedom,
        verdict=verdict,
        compile_cold_ns=cold,
        base_tensor_bytes=peaks[0],
        new_tensor_bytes=peaks[1],
    ),
    st.sampled_from(Outcome),
    st.none() | logs,
    st.none() | errors | st.just(math.nan),
    st.none() | freedoms | st.just(0.0),
    st.none() | st.sampled_from(Verdict),
    st.none() | st.integers(0, 10**12),
    st.tuples(st.none() | st.integers(0, 2**40), st.none() | st.integers(0, 2**40)),
)

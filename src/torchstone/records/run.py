"""A suite at a commit on a machine: what was planned, and the figures of each case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torchstone.records.measurement import GitState, Outcome
from torchstone.records.result import Level, Method, Verdict

# What another tool's file says of a case: its own figures, under its own names, as written.

FOREIGN_DEFINITION = -1
"""`CaseMetrics.definition` of a case that another tool measured. Only its key, its outcome and
`foreign` are set: no figure of another tool stands in a field whose definition is ours."""


@dataclass(frozen=True)
class ForeignMetrics:
    """One row about one case, cell for cell, and where it was read.

    `definition` names whose definitions the columns follow (`pytorch-dynamo`), `table` which of
    that tool's tables it is (`performance`, `accuracy`). A row that was cut short has fewer cells
    than columns. `context` is what else the file says about the row, as JSON.
    """

    format: str
    definition: str
    table: str
    source: str
    line: int
    columns: tuple[str, ...]
    cells: tuple[str, ...]
    context: str = ""

    def cell(self, column: str) -> str | None:
        """The text under a column; None where the row has none."""
        return dict(zip(self.columns, self.cells, strict=False)).get(column)


RUN_SCHEMA = 2
"""2: with the packages of a run. Both are read; runs of 1 have none."""
METRICS_DEFINITION = 2
"""Version of what the fields of `CaseMetrics` mean; figures of two versions are never mixed.
2: the memory ratio is of tensors; by 1 it was of the process's peaks."""
SUITE_DEFINITION = 3
"""Version of what the fields of `SuiteSummary` mean (docs/reference/figures.md). 2: verdicts by the
one rule, `not slower` and `not faster` among them; the memory ratio of tensors. 3: the mean
speed-up leaves out cases whose interval is too wide."""
WIDEST = 2.0
"""A case's interval may reach this factor either way of its middle; wider ones are in no mean."""
SCALES = ("small", "full")
CASE_KIND = "case"
"""`Result.kind` of results that belong to a run."""


@dataclass(frozen=True, order=True)
class CaseKey:
    """One cell of a suite's matrix. Cases of two runs are the same only if all of it is equal.

    `scale` is `small`, `full`, or empty for suites that have none. `threads` 0: the library's
    own choice. `allocator` is one of `records.ALLOCATORS`; `default`, the system's own, is what
    other tools' figures are taken to be measured with.
    """

    suite: str
    model: str
    scale: str
    mode: str
    precision: str
    variant: str
    device: str = "cpu"
    threads: int = 0
    allocator: str = "default"

    @property
    def name(self) -> str:
        """`huggingface/BertForMaskedLM@small inference fp32 inductor`, and what is unusual."""
        scale = f"@{self.scale}" if self.scale else ""
        device = "" if self.device == "cpu" else f" {self.device}"
        threads = f" threads={self.threads}" if self.threads > 1 else ""
        what = f"{self.suite}/{self.model}{scale} {self.mode} {self.precision} {self.variant}"
        return f"{what}{device}{threads}"


@dataclass(frozen=True)
class PlannedCase:
    """A case before it has run. `not_supported` says why it cannot, where that is known already."""

    key: CaseKey
    target: str
    not_supported: str = ""


@dataclass(frozen=True)
class Run:
    """What was planned: every case, in order. Made before the first case is measured."""

    id: str
    created: str
    command: tuple[str, ...]
    plan: tuple[PlannedCase, ...]
    label: str = ""
    machine_id: str = ""
    machine: str = ""
    torch: str = ""
    git: GitState | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries that the suites' models come from, and the commit of a checkout;
    empty text where one was not there."""
    tier: str = ""
    method: Method | None = None
    """The settings of every case, so that `--resume` goes on with the same."""
    notes: tuple[str, ...] = ()
    """What a reader of the table must know, such as the thread count chosen for this machine."""
    version: str = ""
    origin: str = "here"
    links: Mapping[str, str] = field(default_factory=dict)
    """Addresses of the `repository`, the `pull_request` and the CI `job`, where they are known."""
    schema: int = RUN_SCHEMA


@dataclass(frozen=True)
class CaseMetrics:
    """The figures of one case, derived from its stored `Result`; by one definition each.

    `outcome` is the new arm's, or the baseline's where that is not ok (`failed_arm` names it).
    Times are nanoseconds a step by the deciding estimator; compile times are first-call cost above
    steady cost. `..._tensor_bytes` are all tensors at a step's peak, `..._peak_bytes` the process's
    peak and `..._overhead_bytes` what stays resident beyond tensors, both above interpreter and
    torch (see `Memory`). None: not measured or not measurable.
    """

    key: CaseKey
    outcome: Outcome
    reason: str = ""
    failed_arm: str = ""
    result_id: str = ""
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    """Of the speed-up, at `level`."""
    level: float = 0.95
    log_error: float | None = None
    """Standard error of log(speed-up), and its degrees of freedom: for means over cases."""
    log_freedom: float | None = None
    verdict: Verdict | None = None
    margin: float = 0.02
    """What the verdict calls the same."""
    deciding_budget_s: float | None = None
    """Of the case, which would probably show a change as small as the margin."""
    base_ns: float | None = None
    new_ns: float | None = None
    compile_cold_ns: int | None = None
    compile_warm_ns: int | None = None
    base_tensor_bytes: int | None = None
    new_tensor_bytes: int | None = None
    base_peak_bytes: int | None = None
    new_peak_bytes: int | None = None
    base_overhead_bytes: int | None = None
    new_overhead_bytes: int | None = None
    base_faults: float | None = None
    new_faults: float | None = None
    """Minor page faults a call."""
    graphs: int | None = None
    graph_breaks: int | None = None
    break_reasons: tuple[str, ...] = ()
    recompiles: int | None = None
    late_recompiles: int | None = None
    flops: int | None = None
    flops_covered: float | None = None
    agreement: str = ""
    """How the answer was checked on the timed configuration: `fp64`, `eager`, `exact`, `none`."""
    error_ratio: float | None = None
    """The arm's error against float64 over the baseline's own."""
    outputs_checked: int = 0
    worst_check: Level = Level.OK
    checks: tuple[str, ...] = ()
    """Names of the rules that found something worse than a note."""
    replicates: int = 0
    elapsed_s: float = 0.0
    command: tuple[str, ...] = ()
    foreign: tuple[ForeignMetrics, ...] = ()
    """What another tool's files say, under that tool's names; `definition` is then negative."""
    definition: int = METRICS_DEFINITION

    @property
    def low(self) -> float | None:
        """The low end of the speed-up's interval."""
        return self.interval[0] if self.interval else None

    @property
    def high(self) -> float | None:
        """The high end of the speed-up's interval."""
        return self.interval[1] if self.interval else None

    @property
    def too_wide(self) -> bool:
        """Whether its speed-up is known too badly to be in a mean. One of a single process has no
        width: it is in the mean, which then has no interval."""
        if self.log_error is None or self.interval is None:
            return False
        low, high = self.interval
        return not (low > 0.0 and high <= WIDEST**2 * low)

    @property
    def memory_ratio(self) -> float | None:
        """Tensors at the step's peak, baseline over arm: above 1, the arm needs less."""
        return _ratio(self.base_tensor_bytes, self.new_tensor_bytes)

    @property
    def process_memory_ratio(self) -> float | None:
        """The same of the two processes' peaks, with all that a compiler leaves in one of them."""
        return _ratio(self.base_peak_bytes, self.new_peak_bytes)

    @property
    def compiler_bytes(self) -> int | None:
        """What the arm's process keeps beyond tensors and the baseline's does not."""
        base, new = self.base_overhead_bytes, self.new_overhead_bytes
        return None if base is None or new is None else new - base


def _ratio(base: int | None, new: int | None) -> float | None:
    return base / new if base and new else None


@dataclass(frozen=True)
class RunView:
    """A run with the figures of its cases, in the plan's order: what every table is made from.

    Cases without figures were not run (yet); they are in the denominator.
    """

    run: Run
    cases: tuple[CaseMetrics, ...] = field(default=())

    @cached_property
    def complete(self) -> tuple[CaseMetrics, ...]:
        """One entry for every planned case; those that never ran as `not_run`."""
        if len(self.cases) == len(self.run.plan) and all(
            case.key is planned.key for case, planned in zip(self.cases, self.run.plan, strict=True)
        ):
            return self.cases
        known = {case.key: case for case in self.cases}
        return tuple(
            known.get(one.key) or CaseMetrics(one.key, Outcome.NOT_RUN, "not started")
            for one in self.run.plan
        )

    def whole(self, positions: Sequence[int]) -> list[CaseMetrics]:
        """The cases at these places in the plan, with every figure."""
        return [self.complete[position] for position in positions]


@dataclass(frozen=True)
class PassRate:
    """Passing cases out of those that count: all that were planned but the not supported ones."""

    passed: int
    counted: int
    planned: int
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """How many cases ended in each way; every outcome has its entry, 0 where there was none."""

    @property
    def rate(self) -> float | None:
        """None where no case counts."""
        return self.passed / self.counted if self.counted else None


@dataclass(frozen=True)
class Mean:
    """A mean over the `n` passing cases that have the figure, out of `of` passing cases."""

    value: float | None
    n: int
    of: int
    interval: tuple[float, float] | None = None
    """None where there is no measuring error to make it from, or one of the `n` has none."""
    level: float = 0.95


NO_MEAN = Mean(None, 0, 0)


@dataclass(frozen=True)
class SuiteSummary:
    """The figures over all cases of a run that differ in their model alone.

    `speedup`, the memory ratios, the times of a step (`base_ns` in eager, `new_ns`) and
    `new_tensor_bytes` are geometric means, compile times and `compiler_bytes` arithmetic ones.
    `verdicts` counts the passing cases by verdict after Benjamini and Hochberg's correction at
    `false_discovery_rate`; `no_verdict` has none.
    """

    suite: str
    scale: str
    mode: str
    precision: str
    variant: str
    device: str
    threads: int
    allocator: str
    passes: PassRate
    speedup: Mean
    compile_cold_ns: Mean
    compile_warm_ns: Mean
    memory_ratio: Mean
    process_memory_ratio: Mean
    compiler_bytes: Mean
    base_ns: Mean = NO_MEAN
    new_ns: Mean = NO_MEAN
    new_tensor_bytes: Mean = NO_MEAN
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Every verdict has its entry, 0 where there was none."""
    no_verdict: int = 0
    false_discovery_rate: float = 0.05
    figures_definition: int = METRICS_DEFINITION
    definition: int = SUITE_DEFINITION

"""What running a target over several ranks found: times by rank, efficiency, communication."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.records.measurement import Measurement

SCALING_SCHEMA = 1
PLAIN = "plain"
"""One process without a process group."""
PARALLELISM_KINDS = ("ddp", "fsdp", "fsdp-sum", "tp", "pp")
"""DistributedDataParallel; fully_shard as it comes, and with `set_force_sum_reduction_for_comms`;
tensor parallel; pipeline parallel."""


@dataclass(frozen=True)
class Collective:
    """One communication call of one rank, by the clock that all processes of a machine share."""

    name: str
    start_ns: int
    end_ns: int
    bytes: int


@dataclass(frozen=True)
class GradientCheck:
    """Gradients against those of one rank in float64 on the same global batch."""

    error: float
    """|difference| / |reference|, over all weights; the worst rank's."""
    allowed: float
    scale: float
    """The multiple of the reference that is nearest: 2 where a sum was taken for a mean of two."""
    parameter: str
    """The one that is furthest off."""

    @property
    def right(self) -> bool:
        """Whether they agree; NaN does not."""
        return self.error <= self.allowed


@dataclass(frozen=True)
class Communication:
    """A step's communication, over ranks; seconds per step."""

    busy_s: float
    """The union of all calls of a rank, the mean over ranks."""
    transfer_s: float | None
    """From the last rank's arrival on; None where calls are not collective (pipelines)."""
    skew_s: float | None
    """Waiting for the last rank to arrive."""
    exposed_s: float
    """Not hidden behind computation."""
    bytes: float
    calls: float
    step_s: float
    """A step while it was traced, which is slower than otherwise."""
    straggler: int | None = None
    """The rank that arrives last, where the others wait worth mentioning."""
    straggler_share: float = 0.0
    """Of a step, that the others wait for it."""
    ddp_busy_s: float | None = None
    ddp_overlap_s: float | None = None
    """DDP's own account of the same."""

    @property
    def overlap(self) -> float | None:
        """The share of communication behind which there is computation."""
        return 1 - self.exposed_s / self.busy_s if self.busy_s else None


@dataclass(frozen=True)
class Efficiency:
    """With its interval."""

    against: str
    value: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class RankArm:
    """One way to run the target over ranks; `measurement` has the slowest rank's time of a step."""

    kind: str
    ranks: int
    measurement: Measurement
    rank_s: tuple[float, ...] = ()
    """The median step of each rank."""
    threads: tuple[int, ...] = ()
    """Of each rank, as torch has them."""
    gradients: GradientCheck | None = None
    communication: Communication | None = None
    efficiency: tuple[Efficiency, ...] = ()
    failed_rank: int | None = None

    @property
    def name(self) -> str:
        """`plain`, `ddp×1`, `tp×2`."""
        return self.measurement.arm.name


@dataclass(frozen=True)
class Scaling:
    """One `torchstone scaling`."""

    id: str
    created: str
    target: str
    scaling: str
    """`strong`: the global batch is fixed; `weak`: the batch of a rank is."""
    threads: int
    cores: int
    arms: tuple[RankArm, ...] = ()
    machine_id: str = ""
    torch: str = ""
    findings: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    elapsed_s: float = 0.0
    schema: int = SCALING_SCHEMA

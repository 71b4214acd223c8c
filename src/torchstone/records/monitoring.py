"""What a monitor writes down while a training or a service runs: a header, chunks, events.

A chunk holds sums and histograms of about a second, so that chunks of any length, of any rank, can
be added up. What is not known is None, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

MONITOR_VERSION = 1
PHASES = ("data", "transfer", "forward", "backward", "collective", "optimizer", "other")
"""What a step's wall time is split into; `backward` is without the wait in the collective."""
PHASE_NAMES = {
    "data": "waiting for data",
    "transfer": "transfer to the device",
    "forward": "forward and loss",
    "backward": "backward",
    "collective": "waiting for other ranks",
    "optimizer": "optimizer",
    "other": "other",
}
RELATIVE_ERROR = 0.01
"""A quantile of a histogram lies within this share of the true value."""
GAMMA = (1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR)
LOG_GAMMA = math.log(GAMMA)


class StepKind(str, Enum):
    """What a step did, by the marks that were seen in it."""

    TRAIN = "train"
    """Backward and optimizer."""
    ACCUMULATE = "accumulate"
    """Backward without the optimizer: gradients are accumulated, or a scaler skipped the step."""
    FORWARD = "forward"
    """Neither: evaluation, inference."""


class MonitorLevel(str, Enum):
    """How much an event matters."""

    NOTE = "note"
    """Something to know; not a problem, or not one of this program."""
    WARN = "warn"
    """A problem with a cause; the rate of false ones is controlled (`FALSE_ALARMS`)."""


FALSE_ALARMS = 0.01
"""The chance that a healthy run gets a warning of drift, leak or a slow rank at all, over its
whole length. Other warnings are of things seen, not inferred."""


@dataclass(frozen=True)
class Histogram:
    """Counts by logarithmic bucket: bucket b holds (GAMMA^(b-1), GAMMA^b]. Adding is exact."""

    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many values are in it."""
        return sum(self.counts.values())

    @property
    def sum(self) -> float:
        """Of the values, within `RELATIVE_ERROR`."""
        return sum(n * 2.0 * GAMMA ** int(b) / (GAMMA + 1.0) for b, n in self.counts.items())

    def quantile(self, q: float) -> float | None:
        """The value below which a share `q` lies, within `RELATIVE_ERROR`; None when empty."""
        rank = q * (self.total - 1)
        seen = 0
        for bucket, count in sorted((int(key), n) for key, n in self.counts.items()):
            seen += count
            if seen > rank:
                return 2.0 * GAMMA**bucket / (GAMMA + 1.0)
        return None


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """All values together."""
    counts: dict[str, int] = {}
    for one in histograms:
        for bucket, count in one.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
    return Histogram(counts)


@dataclass(frozen=True)
class MonitorHeader:
    """Who writes, and what it can see."""

    id: str
    name: str
    kind: str
    """`training` or `requests`."""
    rank: int
    world_size: int
    pid: int
    started_s: float
    """Seconds since the epoch."""
    process_started: int | None = None
    """As /proc tells it, so that a later process of the same number is not taken for this one."""
    host: str = ""
    device: str = "cpu"
    torch: str = ""
    command: str = ""
    unseen: tuple[str, ...] = ()
    """What cannot be watched here, in sentences."""
    can_profile: bool = False
    flops_per_step: float | None = None
    """Given, or counted once; a header that is written again has it."""
    flops_how: str = ""
    """What was counted, or why nothing was."""
    dtype: str = ""
    """Of the model's parameters: the peak that it is held against."""
    threads: int = 0
    version: int = MONITOR_VERSION


@dataclass(frozen=True)
class KindSums:
    """The steps of one kind in a chunk."""

    steps: int
    wall_ns: int
    phases_ns: Mapping[str, int | None]
    """Their sum is `wall_ns`."""
    times: Histogram
    """Of steps' wall times, in seconds."""


@dataclass(frozen=True)
class Process:
    """The process and the machine over a chunk; None where the system does not say."""

    rss_bytes: int | None = None
    peak_bytes: int | None = None
    """The high-water mark of the process since its start."""
    device_bytes: int | None = None
    device_peak_bytes: int | None = None
    gc_count: int = 0
    gc_ns: int = 0
    cpu_ns: int | None = None
    """Of the training thread."""
    delay_ns: int | None = None
    """How long the training thread was ready to run but had no core."""
    pressure_ns: int | None = None
    """How long some task on this machine waited for a core."""
    gil_delay_ns: int | None = None
    """How long another thread of this process waits for the interpreter, the median of a few."""
    probe_ns: int | None = None
    """A fixed piece of work; it takes longer where the core itself runs slow."""


@dataclass(frozen=True)
class StepChunk:
    """About a second of training."""

    time_s: float
    """The end, in seconds since the epoch."""
    seconds: float
    first_step: int
    last_step: int
    kinds: Mapping[str, KindSums]
    gap_ns: int
    """Between steps: belongs to none."""
    samples: int | None
    tokens: int | None
    loss: float | None
    """The last one that was seen."""
    process: Process
    dropped: Mapping[str, int] = field(default_factory=dict)
    """What each sink has not taken since the start."""
    flops: float | None = None
    """Of all its training steps."""
    device_steps: int = 0
    """Steps that an accelerator finished meanwhile; an event said so."""
    device_ns: Mapping[str, int] = field(default_factory=dict)
    """How long it worked on them, by phase."""

    @property
    def steps(self) -> int:
        """Of all kinds."""
        return sum(one.steps for one in self.kinds.values())


@dataclass(frozen=True)
class RequestChunk:
    """About a second of a service."""

    time_s: float
    seconds: float
    requests: int
    errors: int
    latency: Histogram
    queue: Histogram | None
    """None where nobody said how long requests were queued."""
    batches: Mapping[str, int]
    """Requests by the size of the batch that they were served in."""
    process: Process
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MonitorEvent:
    """Something happened at a step."""

    time_s: float
    step: int
    what: str
    """`recompile`, `drift`, `slow-steps`, …"""
    level: MonitorLevel
    text: str
    """One sentence."""
    cause: str = ""
    remedy: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MonitorEnd:
    """The last line of a monitor that was closed."""

    time_s: float
    steps: int
    reason: str = ""
    """Empty, or the error that ended the loop."""


Line = MonitorHeader | StepChunk | RequestChunk | MonitorEvent | MonitorEnd
KINDS: Mapping[str, type[Line]] = {
    "header": MonitorHeader,
    "chunk": StepChunk,
    "requests": RequestChunk,
    "event": MonitorEvent,
    "end": MonitorEnd,
}
"""The word that a line begins with."""

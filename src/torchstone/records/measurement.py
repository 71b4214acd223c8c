"""The noun that everything turns on. Raw samples are the truth; statistics are derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from torchstone.records.arm import ArmSpec
from torchstone.records.contract import Agreement, Contract
from torchstone.records.environment import Environment

MEASUREMENT_SCHEMA = 1


class Outcome(str, Enum):
    """How an arm ended. Everything but `ok` counts against it."""

    OK = "ok"
    WRONG_ANSWER = "wrong_answer"
    NONDETERMINISTIC = "nondeterministic"
    ERROR = "error"
    CRASH = "crash"
    OOM = "oom"
    TIMEOUT = "timeout"
    NOT_SUPPORTED = "not_supported"
    NOT_RUN = "not_run"


@dataclass(frozen=True)
class OutcomeDetail:
    """The evidence behind an outcome: where it happened and what was left behind."""

    message: str = ""
    phase: str = ""
    remedy: str = ""
    signal: str = ""
    exit_code: int | None = None
    stderr: tuple[str, ...] = ()
    strays_killed: int = 0


@dataclass(frozen=True)
class Noise:
    """What the operating system saw during one turn; None where it does not say."""

    wall_ns: int
    cpu_ns: int
    wait_ns: int | None = None
    involuntary_switches: int | None = None
    steal_ns: int | None = None
    pressure_ns: int | None = None
    throttled_ns: int | None = None
    late_cpu_ns: int | None = None
    """CPU time used by the worker after it had reported the turn as finished."""
    quiet_after_ns: int | None = None
    """Time until every thread of the worker was quiet; None if it never was."""


@dataclass(frozen=True)
class Turn:
    """One uninterrupted stretch of samples by one process while all other arms were idle.

    A sample is `loops` calls (see `Measurement.loops`). `first_ns` is the first sample, kept
    apart because caches are cold. `probe_ns` are the probe's times: one before the first kept
    sample and one after every `probe_every` samples.
    """

    replicate: int
    index: int
    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    probe_ns: tuple[int, ...]
    probe_every: int
    first_ns: int
    minor_faults: int
    major_faults: int
    noise: Noise
    checked: bool = False


@dataclass(frozen=True)
class WarmUp:
    """Calls before a process was steady: the first one's time, the rest, whether it settled."""

    first_call_ns: int
    wall_ns: tuple[int, ...]
    steady: bool
    reason: str = ""


@dataclass(frozen=True)
class Replicate:
    """One process of one arm."""

    index: int
    start_ns: int
    """Import and build, not counting the first call."""
    warm_up: WarmUp
    layout: str = "random"
    """`shared`: the same memory layout and hash seed as the other arms of this replicate."""
    alone: bool = False
    """True when no other arm was resident, because the arms do not fit in memory together."""


@dataclass(frozen=True)
class CompileCost:
    """First-call cost above steady cost, in nanoseconds.

    Cold: empty per-case cache, toolchain already warm (its own one-time cost is
    `toolchain_ns`). Warm: a second process with the cache that the first one filled.
    """

    cold_ns: int
    warm_ns: int | None = None
    toolchain_ns: int | None = None
    first_call_ns: int = 0
    steady_ns: int = 0


@dataclass(frozen=True)
class Memory:
    """What the model needs, and what its process needs, in bytes; None where that is not known.

    **Tensors.** `tensor_peak_bytes` is all tensors alive at the fullest moment of a steady step:
    parameters, buffers, gradients, the optimizer's state, one call's inputs, activations and
    temporaries. On the CPU it is exact by the events of torch's allocator, on an accelerator it is
    its allocator's peak. `tensor_held_bytes` is what is alive between two steps.

    **The process**, above interpreter and torch before the model was built (`before_bytes`).
    `peak_bytes` is the peak of a steady step with all that is resident then, `step_peak_bytes` what
    the step adds to it, and `start_peak_bytes` the highest until then: building, compiling and the
    first calls. `source` is `VmHWM`, or `none` where the platform gives no true peak.

    `overhead_bytes` is what stays resident between two steps beyond the tensors held then: compiled
    code, what compiling and building left behind, libraries' caches.
    """

    source: str
    peak_bytes: int | None = None
    step_peak_bytes: int | None = None
    before_bytes: int = 0
    start_peak_bytes: int | None = None
    tensor_peak_bytes: int | None = None
    tensor_held_bytes: int | None = None
    overhead_bytes: int | None = None

    @property
    def most_bytes(self) -> int:
        """The most that the process is known to have needed."""
        return max(self.peak_bytes or 0, self.start_peak_bytes or 0)


@dataclass(frozen=True)
class Graphs:
    """What the compiler captured. `late_recompiles` happened after warm-up, inside timed turns."""

    graphs: int = 0
    breaks: int = 0
    break_reasons: tuple[str, ...] = ()
    recompiles: int = 0
    late_recompiles: int = 0


@dataclass(frozen=True)
class OpWork:
    """All calls of one op in a step: operations by its formula, bytes of its operands and results,
    time in the counting pass. `flops` is None where no formula is known."""

    op: str
    calls: int
    flops: int | None
    bytes: int
    time_ns: int


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of one step of the plain eager workload, counted by formulas.

    Only ops with a formula count. `time_covered` is the share of the step's op time (in the
    counting pass) that was spent in ops with one; `uncovered` names the dearest ops without.
    A multiplication and an addition are two operations. `bytes` is what all ops together read and
    write, views apart; `least_bytes` is what no implementation can avoid: weights, inputs and
    outputs, each touched once (in training also the gradients, the optimizer's state and the
    weights written back).
    """

    total: int
    by_op: Mapping[str, int] = field(default_factory=dict)
    ops: int = 0
    ops_covered: int = 0
    time_covered: float = 0.0
    uncovered: tuple[str, ...] = ()
    bytes: int = 0
    least_bytes: int = 0
    heaviest: tuple[OpWork, ...] = ()
    """The ops that took most time in the counting pass."""
    time_understood: float = 0.0
    """The share of op time in ops with a formula, and in those known to do no more than a few
    operations for each byte they touch: pointwise, reductions, copies."""
    largest_bytes: int = 0
    """The most that one call of one op touches."""


@dataclass(frozen=True)
class Integrity:
    """Facts that rules R11 and R13 judge: did the arm do its work, in its time, by itself?"""

    patched_timers: tuple[str, ...] = ()
    new_threads: int = 0
    same_input_ns: int = 0
    fresh_input_ns: int = 0
    again_ns: int = 0
    """A call repeated at once with the same input, caches warm."""
    output_types: tuple[str, ...] = ()
    profilers: tuple[str, ...] = ()
    """What watched the process after a turn: tracers, profilers, modes that see each op."""


@dataclass(frozen=True)
class Measurement:
    """One arm, measured: its samples by process and turn, and all the evidence around them."""

    arm: ArmSpec
    outcome: Outcome
    detail: OutcomeDetail = field(default_factory=OutcomeDetail)
    loops: int = 1
    turns: tuple[Turn, ...] = ()
    replicates: tuple[Replicate, ...] = ()
    contract: Contract | None = None
    agreement: Agreement | None = None
    environment: Environment | None = None
    compile: CompileCost | None = None
    memory: Memory | None = None
    graphs: Graphs | None = None
    integrity: Integrity | None = None
    flops: Flops | None = None
    fault_cost_ns: float | None = None
    """What one minor page fault costs on this machine, measured in the arm's solo process."""
    notes: tuple[str, ...] = ()
    probe_bits: int | None = None
    """The size of the probe, the same in all processes of arms with one interpreter."""
    artefacts: Mapping[str, str] = field(default_factory=dict)
    schema: int = MEASUREMENT_SCHEMA

"""The noun that everything turns on. Raw samples are the truth; statistics are derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

# What is measured and how it is run: one arm of a case.

MODES = ("inference", "training")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "amp", "amp-bf16", "amp-fp16")
TIERS = ("bitwise", "tolerance", "statistical", "metric")
"""How near an answer is to the baseline's, the strictest first (`variants.techniques`)."""
ALLOCATORS = ("default", "keep", "jemalloc", "tcmalloc")
"""`default` is the system's own; `keep` is it too, told never to give memory back."""
DYNAMIC_SHAPES = 4
"""Input shapes of all arms of a case in which one is compiled for dynamic shapes."""


COMMAND_SETUP = "from torchstone.workloads.commands import run"


@dataclass(frozen=True)
class Statement:
    """Source code timed in blocks, as `python -m timeit` takes it; `clock` is `wall` or `cpu`."""

    stmt: str
    setup: str = "pass"
    clock: str = "wall"

    @property
    def is_command(self) -> bool:
        """Whether it starts a program and waits for it: the arm's name is the command."""
        return self.setup == COMMAND_SETUP


@dataclass(frozen=True)
class ArmSpec:
    """A workload under a variant, in an interpreter, with an environment.

    `target` is `path.py:make` (a factory), `path.py:fn()` (a function timed as it is),
    `pkg.mod:make`, or a suite name such as `hf:BertForMaskedLM`; it is empty when `statement`
    is set. `python`, `threads` and `env` let two arms differ in interpreter or settings.
    `allocator` is the one that is used: which one where nobody chose is decided before there is
    an arm (`machine.usual_allocator`).
    """

    name: str
    target: str = ""
    variant: str = "eager"
    mode: str = "inference"
    precision: str = "fp32"
    device: str = "cpu"
    threads: int | None = None
    python: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    allocator: str = "default"
    seed: int = 0
    statement: Statement | None = None
    shapes: int = 1
    """Input shapes that a sample goes through in turn, none of them seen in warm-up; 1: one shape,
    always the same."""
    params: tuple[tuple[str, str], ...] = ()
    """Arguments of the factory, as typed: `(("batch", "8"),)`."""
    folder: str = ""
    """Where its processes run, in the checkout it is made of; empty: where we are."""

    @property
    def backend(self) -> str:
        """Its variant without modifiers."""
        return self.variant.split("+")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """What stands behind the plus signs of its variant."""
        return tuple(self.variant.split("+")[1:])

    @property
    def is_eager(self) -> bool:
        """Plain eager code: its traffic is what was counted, and no compiler was tried."""
        return self.backend == "eager"

    @property
    def compiles(self) -> bool:
        """Whether its variant compiles: what eager code's first call costs more is no compiling."""
        return self.statement is None and not self.is_eager


# Where a measurement was made. Made so that no secret can land in it (see `machine/redact`).


@dataclass(frozen=True)
class GitState:
    """The commit of the target's repository, and whether files differ from it."""

    commit: str
    branch: str = ""
    dirty: bool = False


@dataclass(frozen=True)
class Environment:
    """The machine, the interpreter and the libraries of one arm.

    `machine_id` is a hash of the parts that decide speed. `variables` holds allow-listed
    environment variables by value; `hidden_variables` the arm's other ones by salted hash only.
    `source` is a hash of the target's file; empty where the target is none, and in older records.
    `imports` is one over that file and all else that the arm loaded from its folder: equal where
    two arms ran the same code.
    """

    machine_id: str
    cpu: Mapping[str, str] = field(default_factory=dict)
    caches: Mapping[str, int] = field(default_factory=dict)
    memory_bytes: int = 0
    os: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, str] = field(default_factory=dict)
    torch: Mapping[str, str] = field(default_factory=dict)
    threads: Mapping[str, int] = field(default_factory=dict)
    allocator: str = "default"
    variables: Mapping[str, str] = field(default_factory=dict)
    hidden_variables: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    git: GitState | None = None
    source: str = ""
    imports: str = ""
    node: str = ""
    """Of a cluster, by the name it has there; empty where no cluster was used."""


# What an arm must keep to: the shape of its inputs and outputs, its state, its reference.


@dataclass(frozen=True)
class Leaf:
    """One tensor, array or scalar inside a nest of inputs or outputs.

    `kind` is `torch`, `numpy`, `python` or `object`; `type_name` is the exact class, because a
    tensor subclass may postpone its work. Scalars have shape `()`.
    """

    path: str
    kind: str
    dtype: str
    shape: tuple[int, ...] = ()
    device: str = "cpu"
    memory_format: str = "contiguous"
    requires_grad: bool = False
    type_name: str = ""


def describe_leaf(leaf: Leaf) -> str:
    """`float32[8,128]`, with the device when it is not the CPU."""
    size = ",".join(str(n) for n in leaf.shape)
    where = "" if leaf.device == "cpu" else f" on {leaf.device}"
    return f"{leaf.dtype}[{size}]{where}"


DROPOUT_NOTE = "dropout is on, and its masks are drawn at random"
"""Among the notes of a contract: two ways to run such a model need not draw the same."""


@dataclass(frozen=True)
class Contract:
    """Everything about an arm's computation that a variant may change only if it says so."""

    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    training: bool = False
    grad_enabled: bool = False
    autocast: str | None = None
    parameters: int = 0
    parameter_dtypes: Mapping[str, int] = field(default_factory=dict)
    weights_hash: str = ""
    inputs_hash: str = ""
    seed: int = 0
    determinism: Mapping[str, bool] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Agreement:
    """The evidence that an arm computes what the reference computes.

    `method` is `fp64` (RMSE against a float64 run, bounded by the baseline's own error),
    `eager` (compared with the baseline where float64 is not possible; `reason` says why),
    `exact` (integers, strings) or `none`. Errors are the largest over all leaves and inputs
    checked; `checked` counts outputs, of which `timed` came from inside timed turns.
    `error_ratio` is the largest of error ÷ the baseline's own of one and the same leaf; None
    where no leaf has both against float64, and in records older than it.
    """

    method: str
    reason: str = ""
    tolerance: float = 0.0
    multiplier: float = 0.0
    rmse: float = 0.0
    rmse_baseline: float = 0.0
    cosine: float = 1.0
    checked: int = 0
    timed: int = 0
    mismatch: str = ""
    error_ratio: float | None = None
    identical: bool | None = None
    """Whether every output that was checked has the very bits of the baseline's."""
    adversarial: Mapping[str, str] = field(default_factory=dict)
    """By the name of inputs with which a technique is known to fail: what was wrong with the
    answer, empty where nothing was."""
    quality: Mapping[str, float] = field(default_factory=dict)
    """`loss` and `metric` of the arm, and `baseline loss` and `baseline metric`, where they were
    asked for."""


NO_REFERENCE = "no reference"
"""Begins the reason of an agreement by method `none` where none could be made."""
LEAF_GROUPS = ("output.grad.", "output.state.")
"""How the paths of gradients and of buffers begin, in the answer of a training step."""
NOTHING_COMPARABLE = "the target returns nothing that can be compared"
"""The reason where an answer has no tensors, arrays, numbers or text in it."""


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

    @property
    def failed(self) -> bool:
        """Whether something went wrong: exit code 1, listed among the failures."""
        return self not in (Outcome.OK, Outcome.NOT_SUPPORTED, Outcome.NOT_RUN)

    @property
    def counts(self) -> bool:
        """Whether it is in the pass rate's denominator: everything that could have run."""
        return self is not Outcome.NOT_SUPPORTED

    @property
    def comparable(self) -> bool:
        """Whether its times deserve a verdict: not those of a wrong answer, but of a random one."""
        return self in (Outcome.OK, Outcome.NONDETERMINISTIC)

    @property
    def words(self) -> str:
        """`wrong answer`."""
        return self.value.replace("_", " ")


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
class TwoClocks:
    """One turn by the worker's clocks, which the measured code can reach, and by others.

    `marked`: the timed part, between two messages to the conductor, by the worker's clock and by
    the times at which the kernel took the messages. `cpu`: CPU time from the command to the reply,
    by the worker's clock and by the conductor's reading of it; None where there is no such reading.
    `sample`: one of the samples, chosen at random, that had messages of its own before and after.
    """

    marked_worker_ns: int
    marked_kernel_ns: int
    cpu_worker_ns: int
    cpu_conductor_ns: int | None = None
    sample: int | None = None
    sample_kernel_ns: int | None = None


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
    clocks: TwoClocks | None = None
    """None in records without it: imported, or made before turns were timed twice."""
    resident_bytes: int | None = None
    """Of the process, after the turn; None where the system does not say."""


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
    `toolchain_ns`); None where the cache was not ours to empty. Warm: a second process with the
    cache that the first one filled.
    """

    cold_ns: int | None
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
    counting pass) that was spent in ops with one; `uncovered` names the slowest ops without.
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
    """Facts for the rules: did the arm do its work, in its time, by itself?"""

    patched_timers: tuple[str, ...] = ()
    new_threads: int = 0
    same_input_ns: int = 0
    fresh_input_ns: int = 0
    again_ns: int = 0
    """A call repeated at once with the same input, caches warm."""
    output_types: tuple[str, ...] = ()
    profilers: tuple[str, ...] = ()
    """What watched the process after a turn: tracers, profilers, modes that see each op."""
    debug_settings: tuple[str, ...] = ()
    """Settings for finding faults that were on: they cost time."""
    threads_seen: tuple[int, ...] = ()
    """Compute threads of torch after the turns: one number, unless the arm changed it."""
    late_without_spin_ns: int | None = None
    """CPU time after a turn in a process whose idle threads sleep (`SPIN_OFF`), the median; None
    where nothing asked for it."""


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

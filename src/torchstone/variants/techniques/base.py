"""What a technique is: one change of a workload or of its process, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torchstone.records import MODES, TIERS, ArmSpec, NotSupported
from torchstone.workloads import Workload

BITWISE, TOLERANCE, STATISTICAL, METRIC = TIERS

# The inputs that a technique's known failure shows with; `measure.adversarial` makes them.
PERMUTED_STRIDES = "permuted strides"
SECOND_SHAPE = "second shape"
SATURATION = "saturation"
CHANGED_WEIGHTS = "changed weights"

PREPARE, MODEL, CAST, COMPILE, AROUND, OPTIMIZER = range(6)
"""When the code of a recipe runs: before anything is built, on the model (in place, then the cast
of its weights, then the compiler, then what stands around the call), on the optimizer."""


def _anywhere(arm: ArmSpec) -> str:
    return ""


@dataclass(frozen=True)
class Code:
    """A function that needs nothing of ours: its source goes into the recipe, so what is handed
    out is what was measured. `arguments` is written into its call; `{threads}` stands for the
    arm's. A function that cannot do its work raises `NotImplementedError` with the reason."""

    when: int
    function: Callable[..., Any]
    arguments: str = ""


@dataclass(frozen=True)
class Technique:
    """One change, and what is known of it.

    With `apply` or `before` it is a modifier of any variant (`eager+channels_last`); with `set_arm`
    it changes how the arm's process is started, its precision, or the variant itself.
    """

    name: str
    summary: str
    apply: Callable[[Workload], Workload] | None = None
    """The workload, changed."""
    before: Callable[[], None] | None = None
    """What is done in the arm's process before the target is imported."""
    set_arm: Callable[[ArmSpec], ArmSpec] | None = None
    changes: frozenset[str] = frozenset()
    """Contract fields that it may change, and the precision that it computes in."""
    needs_torch: bool = True
    tier: str = TOLERANCE
    """How near its answer is to the baseline's: `bitwise`, `tolerance` (of the baseline's own
    rounding), `statistical` (other values that are as good), `metric` (only the user can tell)."""
    may_break: str = ""
    inputs: tuple[str, ...] = ()
    """Inputs with which its known failure shows; a wrong answer to one refuses it."""
    conditions: tuple[str, ...] = ()
    """The same, where a wrong answer only says under which condition it holds."""
    modes: tuple[str, ...] = MODES
    unsupported: Callable[[ArmSpec], str] = _anywhere
    """Why it cannot apply to this arm, in words; empty where it may."""
    since: str = "2.0"
    until: str = ""
    """Versions of torch: the first one that has it, and the first that has it no more."""
    group: str = ""
    """Of techniques of one group one at most is applied: a later one takes the earlier's place."""
    lines: tuple[str, ...] = ()
    """Lines of the ledger that it can make shorter; empty: all of them."""
    code: tuple[Code, ...] = field(default=())
    trains_otherwise: bool = False
    """It changes how a training converges, so it is judged by the time until the baseline's loss is
    reached, over several seeds."""
    work: int = 1
    """A call does the work of so many of the baseline's; its time is divided by that."""
    goals: tuple[str, ...] = ("speed", "latency", "throughput", "memory")
    """What it can help. One that only saves memory is not tried where speed is asked for."""

    @property
    def modifier(self) -> bool:
        """Whether it is written behind a variant."""
        return self.set_arm is None

    def on(self, arm: ArmSpec) -> ArmSpec:
        """The arm with it."""
        if self.set_arm is not None:
            return self.set_arm(arm)
        return replace(arm, variant=f"{arm.variant}+{self.name}")

    def why_not(self, arm: ArmSpec, torch: str = "") -> str:
        """Why it cannot apply to this arm under this version of torch; empty where it may."""
        if arm.mode not in self.modes:
            return f"it is for {' and '.join(self.modes)} only"
        if torch and self.since and release(torch) < release(self.since):
            return f"it came with torch {self.since}, and this is {torch}"
        if torch and self.until and release(torch) >= release(self.until):
            return f"torch {self.until} removed it, and this is {torch}"
        return self.unsupported(arm)


def release(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` as numbers that can be compared."""
    numbers = []
    for part in version.split("+")[0].split("."):
        digits = "".join(char for char in part if char.isdigit())
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def on_model(function: Callable[..., Any]) -> Callable[[Workload], Workload]:
    """The technique whose code changes the model, or the function that is called."""

    def apply(workload: Workload) -> Workload:
        try:
            return replace(workload, call=function(workload.call))
        except NotImplementedError as error:
            raise NotSupported(str(error)) from error

    return apply


def on_optimizer(function: Callable[..., Any]) -> Callable[[Workload], Workload]:
    """The technique whose code changes the optimizer."""

    def apply(workload: Workload) -> Workload:
        make = workload.optimizer or plain_sgd

        def optimizer(parameters: Any) -> Any:
            try:
                return function(make(list(parameters)))
            except NotImplementedError as error:
                raise NotSupported(str(error)) from error

        return replace(workload, optimizer=optimizer)

    return apply


DEFAULT_LEARNING_RATE = 1e-3
CONVERGENCE_STEPS = 120
"""Training steps over which techniques that train otherwise are compared."""


def plain_sgd(parameters: Any) -> Any:
    """What trains a workload that names no optimizer."""
    import torch

    return torch.optim.SGD(parameters, lr=DEFAULT_LEARNING_RATE)

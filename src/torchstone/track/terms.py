"""On what terms two runs are compared."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchstone.records import Selection, UsageError
from torchstone.stats import Rules

MACHINES, TORCH, THREADS, DEVICES, METHODS = "machines", "torch", "threads", "devices", "methods"
ACROSS = {
    MACHINES: "another machine",
    TORCH: "another build of torch",
    THREADS: "another number of threads: cases are paired without it",
    DEVICES: "another device: cases are paired without it",
    METHODS: "another way of measuring",
}
"""What may differ between two runs when it is asked for, and nothing else."""


@dataclass(frozen=True)
class Terms:
    """What is compared, what may differ, and what verdicts are given by.

    `selection` keeps some cases of both runs (only what belongs to a case is looked at).
    `variants` names the base run's variant and the new run's; its cases are paired as if they
    were one. `only_common` leaves out what one of the runs did not plan.
    """

    selection: Selection = field(default_factory=Selection)
    variants: tuple[str, str] | None = None
    across: frozenset[str] = frozenset()
    only_common: bool = False
    rules: Rules = field(default_factory=Rules)

    @property
    def everything(self) -> bool:
        """Whether every case of each run is looked at, under its own key."""
        whole = self.selection == Selection() and self.variants is None and not self.only_common
        return whole and not self.across & {THREADS, DEVICES}

    def __post_init__(self) -> None:
        unknown = sorted(self.across - set(ACROSS))
        if unknown:
            raise UsageError(
                f"{unknown[0]!r} is nothing that two runs may be compared across.",
                f"There are: {', '.join(ACROSS)}.",
            )

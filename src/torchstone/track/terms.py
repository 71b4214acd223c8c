"""On what terms two runs are compared."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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
ALWAYS = frozenset({TORCH})
"""What may differ unasked, and is marked: a nightly of another torch is compared to see its doing
(docs/decisions.md)."""


@dataclass(frozen=True)
class Terms:
    """What is compared, what may differ, and what verdicts are given by.

    `selection` keeps some cases of both runs (only what belongs to a case is looked at); it
    changes no verdict, because those are given over the whole runs. `variants` names the base
    run's variant and the new run's; its cases are paired as if they were one. `only_common` leaves
    out what one of the runs did not plan.
    """

    selection: Selection = field(default_factory=Selection)
    variants: tuple[str, str] | None = None
    across: frozenset[str] = frozenset()
    only_common: bool = False
    rules: Rules = field(default_factory=Rules)

    @property
    def whole(self) -> Terms:
        """The same with every case selected: what verdicts are given over."""
        return self if self.selection == Selection() else replace(self, selection=Selection())

    @property
    def everything(self) -> bool:
        """Whether every case of each run is looked at, under its own key."""
        whole = self.selection == Selection() and self.variants is None and not self.only_common
        return whole and not self.across & {THREADS, DEVICES}

    def __post_init__(self) -> None:
        if self.variants and self.variants[0] == self.variants[1]:
            # That selects, and pairs nothing.
            one = replace(self.selection, variant=self.variants[0])
            object.__setattr__(self, "selection", one)
            object.__setattr__(self, "variants", None)
        unknown = sorted(self.across - set(ACROSS))
        if unknown:
            raise UsageError(
                f"{unknown[0]!r} is nothing that two runs may be compared across.",
                f"There are: {', '.join(ACROSS)}.",
            )

"""What is known of an arm while its case runs. Frozen into a `Measurement` at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torchstone.conductor.worker import ArmEnded
from torchstone.measure.channel import SoloReport
from torchstone.records import (
    Agreement,
    ArmSpec,
    CompileCost,
    Flops,
    Integrity,
    Measurement,
    Outcome,
    OutcomeDetail,
    Replicate,
    Turn,
)


@dataclass
class ArmState:
    """One arm on its way through the case."""

    spec: ArmSpec
    solo: SoloReport | None = None
    outcome: Outcome = Outcome.OK
    detail: OutcomeDetail = field(default_factory=OutcomeDetail)
    agreement: Agreement | None = None
    loops: int = 1
    probe_bits: int | None = None
    turns: list[Turn] = field(default_factory=list)
    replicates: list[Replicate] = field(default_factory=list)
    late_recompiles: int = 0
    integrity: Integrity | None = None
    toolchain_ns: int | None = None
    flops: Flops | None = None
    notes: list[str] = field(default_factory=list)
    _before_end: tuple[Outcome, OutcomeDetail] = field(
        default=(Outcome.OK, OutcomeDetail()), init=False
    )

    @property
    def alive(self) -> bool:
        """Worth another turn."""
        return self.solo is not None and self.outcome.comparable

    @property
    def changes(self) -> frozenset[str]:
        """Contract fields that the variant may change."""
        return frozenset(self.solo.changes) if self.solo else frozenset()

    @property
    def sources(self) -> Mapping[str, str]:
        """Hashes of the arm's own source files when it ran alone, by path."""
        return self.solo.sources if self.solo else {}

    def end(self, ended: ArmEnded) -> None:
        """The worker died or failed: that is the arm's outcome."""
        self._before_end = self.outcome, self.detail
        self.outcome, self.detail = ended.outcome, ended.detail

    def forgive(self) -> None:
        """Take the last end back: what was known of the arm before it holds again."""
        self.outcome, self.detail = self._before_end

    def wrong(self, outcome: Outcome, message: str, phase: str, remedy: str = "") -> None:
        """The arm ran but did not do what it should."""
        self.outcome = outcome
        self.detail = OutcomeDetail(message=message, phase=phase, remedy=remedy)

    def note_integrity(self, seen: Integrity) -> None:
        """Keep the worst of what was seen over all turns."""
        old = self.integrity or Integrity()
        self.integrity = replace(
            old,
            patched_timers=tuple(sorted({*old.patched_timers, *seen.patched_timers})),
            new_threads=max(old.new_threads, seen.new_threads),
            profilers=tuple(sorted({*old.profilers, *seen.profilers})),
            debug_settings=tuple(sorted({*old.debug_settings, *seen.debug_settings})),
            threads_seen=tuple(sorted({*old.threads_seen, *seen.threads_seen})),
        )

    def measurement(self) -> Measurement:
        """The frozen record."""
        solo = self.solo
        graphs = solo.graphs if solo else None
        if graphs is not None:
            graphs = replace(graphs, late_recompiles=self.late_recompiles)
        return Measurement(
            arm=self.spec,
            outcome=self.outcome,
            detail=self.detail,
            loops=self.loops,
            turns=tuple(self.turns),
            replicates=tuple(self.replicates),
            contract=solo.contract if solo else None,
            agreement=self.agreement,
            environment=solo.environment if solo else None,
            compile=self._compile_cost(),
            memory=solo.memory if solo else None,
            graphs=graphs,
            integrity=self.integrity,
            flops=self.flops,
            fault_cost_ns=solo.fault_cost_ns if solo else None,
            notes=tuple(self.notes),
            probe_bits=self.probe_bits,
        )

    def _compile_cost(self) -> CompileCost | None:
        """First-call cost above a steady call; warm from the first measuring process."""
        if self.solo is None or self.spec.statement is not None:
            return None
        steady = self.solo.step_ns
        warm = self.replicates[0].warm_up.first_call_ns - steady if self.replicates else None
        return CompileCost(
            cold_ns=max(0, self.solo.first_call_ns - steady),
            warm_ns=None if warm is None else max(0, warm),
            toolchain_ns=self.toolchain_ns,
            first_call_ns=self.solo.first_call_ns,
            steady_ns=steady,
        )

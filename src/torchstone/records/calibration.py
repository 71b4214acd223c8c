"""What a machine was seen to be able to do: the roofs that figures are held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CALIBRATION_SCHEMA = 1
DRAM = "DRAM"


@dataclass(frozen=True)
class Peak:
    """One roof and where it comes from. A rate per second (FLOP, bytes, cycles), or for costs the
    seconds that one takes.

    `spread` is how far the median of the samples lies under the best, as a share of the best.
    `sparse` peaks count operations that are skipped; utilisation is never held against one.
    """

    value: float
    spread: float = 0.0
    samples: int = 0
    dtype: str = ""
    threads: int = 0
    level: str = ""
    """Of bandwidth: `L1`, `L2`, `L3` or `DRAM`, by the size of the arrays."""
    array_bytes: int = 0
    source: str = "measured"
    """`measured`, `datasheet` or `user`."""
    sparse: bool = False
    note: str = ""


@dataclass(frozen=True)
class Calibration:
    """The roofs of one device of one machine, measured in one go.

    `fingerprint` hashes what they hold for (processor, cores allowed, caches, device, torch); where
    it differs, or the calibration is older than its time, it is stale. An unknown roof is absent:
    there is no figure to fall back on.
    """

    id: str
    machine_id: str
    fingerprint: str
    created: str
    device: str = "cpu"
    device_name: str = ""
    compute: tuple[Peak, ...] = ()
    bandwidth: tuple[Peak, ...] = ()
    clock: Peak | None = None
    nominal_clock_hz: float | None = None
    costs: Mapping[str, Peak] = field(default_factory=dict)
    """`timer`, `python-call`, `dispatch`: seconds each."""
    last_level_bytes: int = 0
    torch: str = ""
    took_s: float = 0.0
    notes: tuple[str, ...] = ()
    schema: int = CALIBRATION_SCHEMA

    def peak(self, dtype: str, threads: int) -> Peak | None:
        """The measured dense peak of a dtype at a thread count, or None: it is not known."""
        return self._best(p for p in self.compute if p.dtype == dtype and p.threads == threads)

    def bandwidth_of(self, level: str, threads: int) -> Peak | None:
        """The measured bandwidth of a level at a thread count, or None."""
        return self._best(p for p in self.bandwidth if p.level == level and p.threads == threads)

    @staticmethod
    def _best(peaks: Iterable[Peak]) -> Peak | None:
        usable = [peak for peak in peaks if not peak.sparse and peak.value > 0]
        return max(usable, key=lambda peak: peak.value, default=None)

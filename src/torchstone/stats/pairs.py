"""The time ratio of two arms from pairs of calls that were neighbours in time.

Where arms take turns call by call, the two calls of a round meet the machine in the same mood: a
neighbour on the same core, a slow minute. Their ratio does not have it any more, and the middle of
many such ratios is known far better than the ratio of two middles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchstone.stats.late import Late
from torchstone.stats.process import Floats, Ints, ProcessData

if TYPE_CHECKING:
    import numpy as np
else:
    np = Late("numpy")


def pair_logs(base: ProcessData, new: ProcessData) -> Floats:
    """log(new / base) of each round in which both arms took a turn; of longer turns the medians."""
    rounds, base_logs = _turn_logs(base)
    others, new_logs = _turn_logs(new)
    _, left, right = np.intersect1d(rounds, others, assume_unique=True, return_indices=True)
    found: Floats = new_logs[right] - base_logs[left]
    return found


def pairs_log_ratio(arms: Sequence[ProcessData]) -> float:
    """The median over the rounds; NaN without any."""
    logs = pair_logs(arms[0], arms[1])
    return float(np.median(logs)) if logs.size else math.nan


def _turn_logs(data: ProcessData) -> tuple[Ints, Floats]:
    """The turns' indices, in order, and the log of each one's median sample."""
    turns, starts = np.unique(data.turn, return_index=True)
    if turns.size == data.samples.size:
        return turns, np.log(data.samples[starts])
    medians = [float(np.median(data.samples[data.turn == turn])) for turn in turns]
    return turns, np.log(np.asarray(medians))

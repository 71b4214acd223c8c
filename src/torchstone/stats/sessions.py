"""The time ratio of one arm in two sessions, which share neither processes nor turns.

A process of one session is no partner of the process with the same number in the other, and the
sessions need not have equally many. So each session is summed up by itself: one log time for each
process, their mean and its standard error (`ratio.combine`, with the same weights and the same
floor of the variance). The log ratio is the difference of the two means, and its variance the sum
of theirs, with the degrees of freedom of Welch and Satterthwaite (`errors`).

A floor falls with the number of samples it is taken from. All processes therefore count as having
as many as a typical one of the session that has fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median_low

from torchstone.records import Measurement
from torchstone.stats.errors import Error, error_of_sum
from torchstone.stats.process import ProcessData, process_data, replicates_with_samples
from torchstone.stats.ratio import LogFit, combine, own_weights, process_time


def fit_sessions(
    base: Measurement, new: Measurement, estimators: Sequence[str]
) -> dict[str, LogFit]:
    """The log of the time ratio new / base by each estimator, over all processes of both."""
    old_session, new_session = _processes(base), _processes(new)
    sizes = [_typical_size(session) for session in (old_session, new_session) if session]
    n = min(sizes, default=1)
    return {
        name: _difference(_time(old_session, name, n), _time(new_session, name, n))
        for name in estimators
    }


def _processes(measurement: Measurement) -> list[ProcessData]:
    return [process_data(measurement, r) for r in replicates_with_samples(measurement)]


def _typical_size(session: Sequence[ProcessData]) -> int:
    """Not the smallest: one process that was cut short would cost all others their floors."""
    return median_low(data.samples.size for data in session)


def _time(session: Sequence[ProcessData], estimator: str, n: int) -> LogFit:
    """The mean log time of one session. Probes of two sessions may be of two sizes, so full
    speed is the session's own."""
    values = [process_time(estimator, data, n) for data in session]
    return combine(values, own_weights(session, estimator))


def _difference(base: LogFit, new: LogFit) -> LogFit:
    """Of two means of independent processes; without an error where one is of a single process."""
    centre, fewest = new.centre - base.centre, min(base.replicates, new.replicates)
    if fewest < 2:
        return LogFit(centre, math.nan, fewest)
    error = error_of_sum([Error(base.std_error, base.df), Error(new.std_error, new.df)])
    return LogFit(centre, error.size, fewest, freedom=error.freedom)

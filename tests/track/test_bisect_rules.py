"""The posterior over commits: right where it is sure, and as sure as it is right."""

from __future__ import annotations

import math
import random

import pytest

from torchstone.track import check
from torchstone.track.check import Probe

N = 32
ERROR = 0.006


class History:
    """Commits with true levels, probed with noise."""

    def __init__(self, effects: dict[int, float], seed: int, noise: float = ERROR) -> None:
        self.effects, self.noise, self.chance = effects, noise, random.Random(seed)

    def probe(self, commit: int) -> Probe:
        level = sum(size for place, size in self.effects.items() if place <= commit)
        return Probe(commit, level + self.chance.gauss(0.0, self.noise), self.noise, 8.0)


def search(history: History, skipped: frozenset[int] = frozenset(), most: int = 40) -> tuple:
    probes: list[Probe] = []
    told = ""
    while not told and len(probes) < most:
        commit = check.next_probe(N, probes, skipped)
        assert commit is not None
        assert commit not in skipped
        probes.append(history.probe(commit))
        found = check.posterior(N, probes)
        told = check.answer(found, 0.95, skipped)
    return told, found, probes


@pytest.mark.parametrize("culprit", [1, 2, 17, 31, 32])
def test_one_culprit_is_found_in_about_as_many_probes_as_halving(culprit: int) -> None:
    told, found, probes = search(History({culprit: 0.05}, seed=culprit))
    assert (told, found.best()[0]) == ("one", culprit)
    assert len(probes) <= 8
    assert math.isclose(found.effect[culprit], 0.05, abs_tol=0.01)


def test_an_improvement_is_found_as_well() -> None:
    told, found, _ = search(History({9: -0.08}, seed=1))
    assert (told, found.best()[0]) == ("one", 9)
    assert found.effect[9] < 0


def test_the_ends_may_not_differ() -> None:
    told, found, probes = search(History({}, seed=3))
    assert told == "none"
    assert found.none >= 0.95
    assert {probe.commit for probe in probes} == {N}


def test_two_culprits() -> None:
    told, found, _ = search(History({7: 0.05, 22: 0.06}, seed=2))
    assert told == "two"
    assert set(found.best(2)) == {7, 22}


def test_commits_that_cannot_be_measured_end_in_a_range() -> None:
    skipped = frozenset({15, 16, 17})
    told, found, _ = search(History({16: 0.06}, seed=4), skipped)
    assert told == "range"
    assert check.neighbours(found.best()[0], N, skipped) == (15, 18)


def test_where_nothing_can_be_measured_there_is_no_next() -> None:
    assert check.next_probe(3, [], {1, 2, 3}) is None


def test_what_left_it_open_is_measured_again() -> None:
    history = History({20: 0.03}, seed=5, noise=0.02)
    told, found, probes = search(history, most=80)
    assert len(probes) > len({probe.commit for probe in probes})
    assert (told, found.best()[0]) == ("one", 20)


def test_stated_confidence_is_that_of_the_answer() -> None:
    """A small version of `benchmarks/bisect_rates.py`, noisy enough to be wrong at times."""
    right, stated = [], []
    for seed in range(40):
        culprit = random.Random(seed).randrange(1, N + 1)
        told, found, _ = search(History({culprit: 0.03}, seed=1000 + seed, noise=0.012))
        if told == "one":
            right.append(found.best()[0] == culprit)
            stated.append(found.culprit[found.best()[0]])
    assert len(right) >= 36
    assert abs(sum(right) / len(right) - sum(stated) / len(stated)) < 0.08


def test_one_lucky_error_does_not_decide() -> None:
    """Four processes that agree by chance: the others' errors say how much that is worth."""
    usual = [Probe(N, 0.05, 0.01, 3.0), Probe(16, 0.04, 0.012, 3.0), Probe(8, 0.0, 0.011, 3.0)]
    lucky = Probe(12, 0.02, 0.0001, 3.0)
    assert check.variances_of([*usual, lucky])[-1] > (0.5 * 0.011) ** 2
    busy = Probe(12, 0.02, 0.5, 3.0)
    assert check.variances_of([*usual, busy])[0] < 0.02**2


def test_the_posterior_is_one() -> None:
    probes = [Probe(N, 0.05, 0.01, 8.0), Probe(16, 0.02, 0.01, 8.0)]
    found = check.posterior(N, probes)
    fit = check._Fit(N, probes)
    assert math.isclose(fit.none + fit.one.sum() + fit.two.sum(), 1.0)
    assert math.isclose(sum(found.culprit), fit.one.sum() + 2 * fit.two.sum(), rel_tol=1e-9)

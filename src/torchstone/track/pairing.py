"""Which case of one run is which of the other's.

Cases are the same only if their whole key is equal, but for what the terms say: a variant named
for each side, or threads or devices that may differ. A case that is `not_supported` is not there:
it counts neither for nor against a run. Nor is one that the base planned and did not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from torchstone.records import CaseFigures, CaseKey, Outcome, UsageError
from torchstone.track.sides import Side
from torchstone.track.terms import DEVICES, THREADS, Terms

PAIRED, NEWLY_FAILING, NEWLY_PASSING, FAILING = (
    "paired",
    "newly failing",
    "newly passing",
    "failing",
)
ONLY_BASE, ONLY_NEW = "only in base", "only in new"
_BOTH = {
    (True, True): PAIRED,
    (True, False): NEWLY_FAILING,
    (False, True): NEWLY_PASSING,
    (False, False): FAILING,
}
"""By whether it passes in the base run, and in the new one."""
KINDS = (PAIRED, NEWLY_FAILING, NEWLY_PASSING, FAILING, ONLY_BASE, ONLY_NEW)


@dataclass(frozen=True)
class Pair:
    """A case as either run, or both, has it. `key` is the one that both are paired by."""

    key: CaseKey
    kind: str
    base: CaseFigures | None
    new: CaseFigures | None

    @property
    def both(self) -> tuple[CaseFigures, CaseFigures]:
        """The case in both runs; only for a case that both have."""
        if self.base is None or self.new is None:
            raise ValueError(f"{self.key.name} is not in both runs")
        return self.base, self.new


def pairs_of(base: Side, new: Side, terms: Terms) -> list[Pair]:
    """Every case of the base run in its order, then what only the new run has."""
    olds, news = chosen(base, terms, 0), chosen(new, terms, 1)
    every: list[tuple[CaseKey, CaseFigures | None, CaseFigures | None]]
    every = [(key, case, news.get(key)) for key, case in olds.items()]
    every += [(key, None, case) for key, case in news.items() if key not in olds]
    found = []
    for key, old, fresh in every:
        pair = _pair(key, _began(old, fresh, _there(old, base)), _there(fresh, new))
        if pair is not None and not (terms.only_common and pair.kind in (ONLY_BASE, ONLY_NEW)):
            found.append(pair)
    return found


def selected(pairs: Sequence[Pair], terms: Terms) -> list[Pair]:
    """The pairs that the terms select, by the key of either run's own case."""
    fits = _fits(terms, "")
    if fits is None:
        return list(pairs)
    return [
        pair
        for pair in pairs
        if any(case is not None and fits(case.key) for case in (pair.base, pair.new))
    ]


def chosen(side: Side, terms: Terms, number: int) -> dict[CaseKey, CaseFigures]:
    """The cases that the terms select, by the key that they are paired by."""
    found: dict[CaseKey, CaseFigures] = {}
    if terms.everything:
        return {case.key: case for case in side.cases}
    for case in _selected(side.cases, terms, number):
        key = common_key(case.key, terms)
        if key in found:
            raise UsageError(
                f"The {('base', 'new')[number]} run has {key.model[:80]} more than once when "
                f"{' and '.join(sorted(terms.across & {THREADS, DEVICES}))} may differ.",
                "Leave that out of --across, or compare runs that have each case once.",
            )
        found[key] = case
    return found


def common_key(key: CaseKey, terms: Terms) -> CaseKey:
    """The key without what may differ; the new run's variant stands for both."""
    if terms.variants and key.variant == terms.variants[0]:
        key = replace(key, variant=terms.variants[1])
    if THREADS in terms.across:
        key = replace(key, threads=0)
    return replace(key, device="") if DEVICES in terms.across else key


def _selected(cases: Iterable[CaseFigures], terms: Terms, number: int) -> Iterator[CaseFigures]:
    fits = _fits(terms, terms.variants[number] if terms.variants else "")
    for case in cases:
        if fits is None or fits(case.key):
            yield case


def _fits(terms: Terms, variant: str) -> Callable[[CaseKey], bool] | None:
    """Whether a key is selected, of cases of that variant where one is named; None: every one."""
    asked = replace(terms.selection, variant=variant) if terms.variants else terms.selection
    names = (
        *("suite", "model", "scale", "mode", "precision", "variant", "device", "threads"),
        "allocator",
    )
    wanted = [(name, value) for name in names if (value := getattr(asked, name)) not in ("", None)]
    if not wanted:
        return None
    return lambda key: all(getattr(key, name) == value for name, value in wanted)


def _began(
    old: CaseFigures | None, fresh: CaseFigures | None, there: CaseFigures | None
) -> CaseFigures | None:
    """The base's case, unless it never ran there: then nobody knows whether it would have passed,
    and passing now is no news. What neither run came to stays in both."""
    if old is None or old.outcome is not Outcome.NOT_RUN:
        return there
    return there if fresh is not None and fresh.outcome is Outcome.NOT_RUN else None


def _there(case: CaseFigures | None, side: Side) -> CaseFigures | None:
    """None for what is not to be counted: not supported, or still to come in a run under way."""
    if case is None or case.outcome is Outcome.NOT_SUPPORTED:
        return None
    waiting = case.outcome is Outcome.NOT_RUN and side.head.state == "running"
    return None if waiting else case


def _pair(key: CaseKey, base: CaseFigures | None, new: CaseFigures | None) -> Pair | None:
    if base is None or new is None:
        if base is new:
            return None
        return Pair(key, ONLY_NEW if base is None else ONLY_BASE, base, new)
    before, after = base.outcome is Outcome.OK, new.outcome is Outcome.OK
    return Pair(key, _BOTH[before, after], base, new)

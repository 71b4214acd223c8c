"""Which case of one run is which of the other's.

Cases are the same only if their whole key is equal, but for what the terms say: a variant named
for each side, or threads or devices that may differ. A case that is `not_supported` is not there:
it counts neither for nor against a run. Nor is one that the base planned and did not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from torchstone.records import (
    FOREIGN_DEFINITION,
    CaseChange,
    CaseKey,
    CaseMetrics,
    ChangeKind,
    Level,
    Method,
    Outcome,
    UsageError,
)
from torchstone.track.terms import (
    ACROSS,
    ALWAYS,
    DEVICES,
    MACHINES,
    METHODS,
    THREADS,
    TORCH,
    Side,
    Terms,
)

_BOTH = {
    (True, True): ChangeKind.PAIRED,
    (True, False): ChangeKind.NEWLY_FAILING,
    (False, True): ChangeKind.NEWLY_PASSING,
    (False, False): ChangeKind.FAILING,
}
"""By whether it passes in the base run, and in the new one."""


def pairs_of(base: Side, new: Side, terms: Terms) -> list[CaseChange]:
    """Every case of the base run in its order, then what only the new run has."""
    olds, news = chosen(base, terms, 0), chosen(new, terms, 1)
    every: list[tuple[CaseKey, CaseMetrics | None, CaseMetrics | None]]
    every = [(key, case, news.get(key)) for key, case in olds.items()]
    every += [(key, None, case) for key, case in news.items() if key not in olds]
    found = []
    for key, old, fresh in every:
        pair = _pair(key, _began(old, fresh, _there(old, base)), _there(fresh, new))
        if pair is not None and not (terms.only_common and None in (pair.base, pair.new)):
            found.append(pair)
    return found


def selected(pairs: Sequence[CaseChange], terms: Terms) -> list[CaseChange]:
    """The pairs that the terms select, by the key of either run's own case."""
    fits = _fits(terms, "")
    if fits is None:
        return list(pairs)
    return [
        pair
        for pair in pairs
        if any(case is not None and fits(case.key) for case in (pair.base, pair.new))
    ]


def chosen(side: Side, terms: Terms, number: int) -> dict[CaseKey, CaseMetrics]:
    """The cases that the terms select, by the key that they are paired by."""
    found: dict[CaseKey, CaseMetrics] = {}
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


def _selected(cases: Iterable[CaseMetrics], terms: Terms, number: int) -> Iterator[CaseMetrics]:
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
    old: CaseMetrics | None, fresh: CaseMetrics | None, there: CaseMetrics | None
) -> CaseMetrics | None:
    """The base's case, unless it never ran there: then nobody knows whether it would have passed,
    and passing now is no news. What neither run came to stays in both."""
    if old is None or old.outcome is not Outcome.NOT_RUN:
        return there
    return there if fresh is not None and fresh.outcome is Outcome.NOT_RUN else None


def _there(case: CaseMetrics | None, side: Side) -> CaseMetrics | None:
    """None for what is not to be counted: not supported, or still to come in a run under way."""
    if case is None or case.outcome is Outcome.NOT_SUPPORTED:
        return None
    waiting = case.outcome is Outcome.NOT_RUN and side.head.state == "running"
    return None if waiting else case


def _pair(key: CaseKey, base: CaseMetrics | None, new: CaseMetrics | None) -> CaseChange | None:
    if base is None or new is None:
        if base is new:
            return None
        return CaseChange(
            key, ChangeKind.ONLY_NEW if base is None else ChangeKind.ONLY_BASE, base, new
        )
    before, after = base.outcome is Outcome.OK, new.outcome is Outcome.OK
    return CaseChange(key, _BOTH[before, after], base, new)


# Why two runs cannot be compared, and what a reader must know where they can.
#
# Numbers of two machines, two definitions or two ways of measuring differ for reasons that have
# nothing to do with what is asked. So that is refused unless it is what is asked; then it becomes a
# mark that stands above every table. Two builds of torch are what a nightly compares: they have the
# mark, and are not refused.


HERE = "here"
_SAME_SCALE = "Run both at the same --scale: small and full are different models."
_SAME_ALLOCATOR = (
    "Run both with the same --allocator. What another one costs is measured by an arm that uses "
    'it: `torchstone bench TARGET --arm "name=system allocator=default"`.'
)
_SAME_CASES = (
    "Compare runs of the same suites, models, modes, precisions and variants; "
    "--variant BASE=NEW pairs the cases of two variants."
)


@dataclass(frozen=True)
class Reason:
    """Something that differs. `across` names what would allow it; else `remedy` says what to do."""

    text: str
    across: str = ""
    remedy: str = ""


def reasons(
    base: Side, new: Side, terms: Terms, pairs: Sequence[CaseChange], every: Sequence[CaseChange]
) -> list[Reason]:
    """Everything that stands in the way, what is allowed left out.

    `pairs` are those that the terms select of `every` one, which verdicts are given over.
    """
    found = [*_nothing_common(base, new, terms, pairs), *_definitions(every)]
    found += _differences(base, new)
    return [reason for reason in found if reason.across not in terms.across | ALWAYS]


def refusal(found: Sequence[Reason]) -> tuple[str, str]:
    """All reasons as one text, and the remedy; two empty texts where there is none."""
    text = " ".join(reason.text for reason in found)
    hopeless = [reason.remedy for reason in found if not reason.across]
    if hopeless or not found:
        return text, " ".join(dict.fromkeys(hopeless))
    names = ",".join(dict.fromkeys(reason.across for reason in found))
    return text, f"If that difference is what you want to see, add --across {names}."


def marks(base: Side, new: Side, terms: Terms, pairs: Sequence[CaseChange]) -> tuple[str, ...]:
    """What to know before reading on, the gravest first."""
    return tuple(
        mark
        for found in (
            _allowed(base, new, terms),
            _asked(base, new, terms, pairs),
            *(_about(name, side) for name, side in (("base", base), ("new", new))),
            _between(base, new, pairs),
        )
        for mark in found
    )


def _differences(base: Side, new: Side) -> Iterator[Reason]:
    """What the two runs' own records say of machine, torch and method."""
    if base.head.machine_id != new.head.machine_id:
        text = f"The runs are of two machines: {_machine(base)} and {_machine(new)}."
        yield Reason(text, MACHINES)
    if base.head.torch != new.head.torch:
        text = f"The runs are of two builds of torch: {_torch(base)} and {_torch(new)}."
        yield Reason(text, TORCH)
    one, other = base.method, new.method
    if one is not None and other is not None and _way(one) != _way(other):
        pair = f"{_way_words(one)} and {_way_words(other)}"
        yield Reason(f"The runs were measured in two ways: {pair}.", METHODS)


def _definitions(pairs: Sequence[CaseChange]) -> Iterator[Reason]:
    """Figures of two definitions are never mixed, whatever is asked."""
    paired = [pair for pair in pairs if pair.paired]
    olds, news = (
        sorted({case.definition for case in cases if case is not None})
        for cases in ([pair.base for pair in paired], [pair.new for pair in paired])
    )
    if olds == news and len(olds) <= 1:
        return
    if FOREIGN_DEFINITION in (*olds, *news):
        yield Reason(
            "One of the runs holds another tool's figures, which follow that tool's definitions "
            "and do not mix with ours.",
            remedy="Compare it with a run that was imported in the same way.",
        )
        return
    named = " and ".join(map(str, dict.fromkeys((*olds, *news))))
    yield Reason(
        f"The figures of these cases were derived by the definitions {named}, which do not mix.",
        remedy="Derive the older ones again from their samples with `torchstone db rebuild`; where "
        "the samples have been pruned, only measuring again helps.",
    )


def _nothing_common(
    base: Side, new: Side, terms: Terms, pairs: Sequence[CaseChange]
) -> Iterator[Reason]:
    if any(pair.base is not None and pair.new is not None for pair in pairs):
        return
    olds, news = chosen(base, terms, 0), chosen(new, terms, 1)
    for name, cases in (("base", olds), ("new", news)):
        if not cases:
            yield Reason(f"The {name} run has no such case.", remedy=_has(base, new))
            return
    if olds.keys() & news.keys():
        yield Reason(
            "No case that both runs planned has ended in both.",
            remedy="Choose a base that got further.",
        )
        return
    whole = (
        ("threads", Reason("", THREADS)),
        ("device", Reason("", DEVICES)),
        ("allocator", Reason("", remedy=_SAME_ALLOCATOR)),
        ("scale", Reason("", remedy=_SAME_SCALE)),
    )
    for name, reason in whole:
        if _without(olds, name) & _without(news, name):
            values = (sorted({str(getattr(key, name)) for key in keys}) for keys in (olds, news))
            said = " and ".join(" or ".join(one) for one in values)
            yield replace(reason, text=f"The runs' cases differ in {name}: {said}.")
            return
    yield Reason("The two runs have no case in common.", remedy=_SAME_CASES)


def _has(base: Side, new: Side) -> str:
    keys = [case.key for side in (base, new) for case in side.cases]
    names = ("suite", "mode", "precision", "variant")
    found = {name: sorted({str(getattr(key, name)) for key in keys}) for name in names}
    return "There are: " + "; ".join(f"{k} {', '.join(v[:8])}" for k, v in found.items()) + "."


def _without(keys: dict[CaseKey, CaseMetrics], name: str) -> set[tuple[object, ...]]:
    names = [field for field in CaseKey.__dataclass_fields__ if field != name]
    return {tuple(getattr(key, field) for field in names) for key in keys}


def _allowed(base: Side, new: Side, terms: Terms) -> Iterator[str]:
    for reason in _differences(base, new):
        asked = ", as asked" if reason.across in terms.across else ""
        if asked or reason.across in ALWAYS:
            yield f"{ACROSS[reason.across]}{asked}: {_lower(reason.text)}"
    for name in (THREADS, DEVICES):
        field = {THREADS: "threads", DEVICES: "device"}[name]
        found = (sorted({str(getattr(c.key, field)) for c in side.cases}) for side in (base, new))
        olds, news = (", ".join(values) for values in found)
        if name in terms.across and olds != news:
            yield f"{ACROSS[name]} (base {olds}; new {news})"


def _asked(base: Side, new: Side, terms: Terms, pairs: Sequence[CaseChange]) -> Iterator[str]:
    if terms.variants and terms.variants[0] != terms.variants[1]:
        yield f"variant {terms.variants[0]} of base against {terms.variants[1]} of new"
    if base.head.id and base.head.id == new.head.id:
        told = "so intervals are wider than they need be" if terms.variants else "nothing changed"
        yield f"base and new are the same run: both sides share their baselines, {told}"
    if not base.head.machine_id and not new.head.machine_id:
        yield "neither run says on what machine it was made"
    foreign = [p for p in pairs if p.paired and p.new is not None and p.new.definition < 0]
    if foreign:
        yield "another tool's figures: outcomes are compared, times are not"


def _about(name: str, side: Side) -> Iterator[str]:
    head = side.head
    if head.state != "complete":
        yield f"{name}: {head.state}, {head.done} of {head.planned} cases have ended"
    if head.dirty:
        yield f"{name}: files differed from the commit {head.commit[:10]}"
    if head.origin != HERE:
        yield f"{name}: from {head.origin}"


def _between(base: Side, new: Side, pairs: Sequence[CaseChange]) -> Iterator[str]:
    if base.version and new.version and base.version != new.version:
        yield f"measured by Torchstone {base.version} and {new.version}"
    doubted = sum(
        any(case is not None and case.worst_check is Level.FAIL for case in (pair.base, pair.new))
        for pair in pairs
        if pair.paired
    )
    if doubted:
        yield f"in {doubted} of the paired cases a check says that a number is not to be believed"
    waiting = sum(pair.new is not None and pair.new.outcome is Outcome.NOT_RUN for pair in pairs)
    if waiting:
        cases = "1 case" if waiting == 1 else f"{waiting} cases"
        yield f"new: {cases} planned and not run, counted as failing"


def _machine(side: Side) -> str:
    head = side.head
    if not head.machine_id:
        return f"one that is not known ({head.machine})" if head.machine else "one not known"
    return f"{head.machine} ({head.machine_id[:12]})" if head.machine else head.machine_id[:12]


def _torch(side: Side) -> str:
    return side.head.torch or "one not known"


def _way(method: Method) -> tuple[object, ...]:
    return method.estimator, method.definition, method.independent


def _way_words(method: Method) -> str:
    apart = ", one arm at a time" if method.independent else ""
    return f"{method.estimator or 'no estimator named'} of definition {method.definition}{apart}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")

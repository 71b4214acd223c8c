"""From what a URL asks to what is shown: defaults from the newest run, names checked, droplists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torchstone.records import Choices, RunHead, Selection, SuiteSummary
from torchstone.show.cells import CARRIED, cut, machine_title, run_title
from torchstone.show.page import Choice, Controls, Link
from torchstone.show.table import sanitise
from torchstone.track.resolve import newest_whole, same_series
from torchstone.track.terms import ACROSS, ALWAYS
from torchstone.web.query import (
    ALL,
    GRANULARITIES,
    RANGES,
    NotFound,
    Query,
    selection,
    shown,
    with_defaults,
)
from torchstone.web.sources import DataAccess

LISTED = 100
MAIN_BRANCHES = ("main", "master", "trunk")
"""Runs in a droplist; and branches, builds of torch and machines, of which there may be
thousands."""
_FIELDS = {
    "suite": "suites",
    "scale": "scales",
    "mode": "modes",
    "precision": "precisions",
    "variant": "variants",
    "device": "devices",
    "threads": "threads",
    "allocator": "allocators",
    "machine": "machines",
    "branch": "branches",
    "torch": "torches",
}
LABELS = {name: name.capitalize() for name in _FIELDS}
LONG_RANGES = ("365", "all")
"""Ranges of more runs than a chart has room for: one a week is drawn unless more are asked for."""
_SELDOM = ("scale", "device", "threads", "allocator", "machine", "branch", "torch")
"""Droplists that are only there when there is something to choose."""


@dataclass(frozen=True)
class Context:
    """What a page is about. `query` is as given, `chosen` with every default filled in."""

    query: Query
    chosen: Query
    choices: Choices
    heads: tuple[RunHead, ...]
    new: RunHead | None
    base: RunHead | None
    groups: tuple[SuiteSummary, ...] = ()
    """The suites of the new run."""
    passed_over: tuple[RunHead, ...] = ()
    """Runs newer than `new` that were interrupted, where the reader chose none."""
    across: frozenset[str] = frozenset()
    """What may differ because of how the runs were named."""
    notes: tuple[str, ...] = ()
    """What the words for the runs left open."""
    exported: bool = False
    """Whether there is no server that could be asked for another choice."""

    @cached_property
    def cases(self) -> Selection:
        """Which cases are looked at, whatever their run."""
        asked = replace(self.chosen, since="", until="", range=ALL)
        return replace(selection(asked), machine_id="", branch="", torch="")

    @cached_property
    def history(self) -> Selection:
        """The same over the range, on the chosen machine and branch."""
        newest = self.heads[0].created_s if self.heads else None
        return selection(self.chosen, newest)

    @cached_property
    def carried(self) -> tuple[tuple[str, str], ...]:
        """What a link to another page takes along."""
        return self.query.kept(*CARRIED)

    @cached_property
    def to_base(self) -> tuple[tuple[str, str], ...]:
        """What a link to the base's own figures takes along."""
        rest = tuple(item for item in self.carried if item[0] not in ("base", "new"))
        return (*rest, ("new", self.base.id)) if self.base else rest


def resolve(source: DataAccess, query: Query) -> Context:
    """Fill in what the URL leaves open: every mode and precision, the newest runs, a week."""
    choices = source.choices()
    _check(query, choices)
    runs = Selection(
        suite="" if query.suite == ALL else query.suite,
        machine_id="" if query.machine == ALL else query.machine,
        branch="" if query.branch == ALL else query.branch,
        torch="" if query.torch == ALL else query.torch,
    )
    heads = tuple(source.heads(runs, LISTED))
    new, by_new = source.named(query.new) if query.new else (newest_whole(heads), None)
    base, by_base = _before(source, heads, new), None
    if query.base:
        base, by_base = source.named(query.base, new)
    words = [found for found in (by_base, by_new) if found is not None]
    groups = tuple(source.groups(new)) if new is not None else ()
    zoomed = bool(query.since or query.until)
    granularity = "week" if query.range in LONG_RANGES else "run"
    chosen = with_defaults(query, range="7", granularity=granularity, mode=ALL, precision=ALL)
    chosen = replace(chosen, range="") if zoomed else chosen
    if new is not None:  # figures of two machines or branches are no history of each other
        chosen = with_defaults(chosen, machine=new.machine_id, branch=new.branch)
    return Context(
        query,
        chosen,
        choices,
        heads,
        new,
        base,
        groups,
        passed_over=() if query.new else _passed_over(heads, new),
        across=frozenset().union(*(found.across for found in words)),
        notes=tuple(dict.fromkeys(found.note for found in words if found.note)),
        exported=source.exported,
    )


def _passed_over(heads: Sequence[RunHead], new: RunHead | None) -> tuple[RunHead, ...]:
    """The newer ones that were interrupted, where one that did not is shown in their stead."""
    if new is None or new.state != "complete":
        return ()
    place = next((i for i, head in enumerate(heads) if head.id == new.id), 0)
    return tuple(head for head in heads[:place] if head.state == "interrupted")


def _before(source: DataAccess, heads: Sequence[RunHead], new: RunHead | None) -> RunHead | None:
    """The run before: of the same machine, branch and kind, with a suite in common, whatever its
    torch; for a branch, that of the main branch. One that got to its end is better than a newer
    one that was interrupted."""
    if new is None:
        return None
    main = [] if new.branch in MAIN_BRANCHES else _on_main(source, heads, new)
    if any(head.state == "complete" for head in main):  # what a pull request would change
        return newest_whole(main)
    known = [head for head in heads if _comparable(head, new)]
    if not any(head.state == "complete" for head in known):
        # It may be as old as the oldest that is listed, or older.
        near = Selection(machine_id=new.machine_id, branch=new.branch)
        known += [head for head in source.heads(near, LISTED, new.id) if _comparable(head, new)]
    known = known or main
    return newest_whole([head for head in known if head.state != "running"] or known)


def _on_main(source: DataAccess, heads: Sequence[RunHead], new: RunHead) -> list[RunHead]:
    """For a run of a branch, such as a pull request's: the runs of the main branch that were there
    before it."""
    found: list[RunHead] = []
    for branch in MAIN_BRANCHES:
        near = Selection(machine_id=new.machine_id, branch=branch)
        told = [*heads, *source.heads(near, LISTED, new.id)]
        asked = replace(new, branch=branch)
        found += [one for one in told if one.branch == branch and _comparable(one, asked)]
    return sorted({one.id: one for one in found}.values(), key=lambda one: -(one.created_s or 0.0))


def newer_than(source: DataAccess, base: RunHead) -> RunHead | None:
    """The newest run that may be held against this one; None where it is the newest itself."""
    near = Selection(machine_id=base.machine_id, branch=base.branch)
    return newest_whole([head for head in source.heads(near, LISTED) if _comparable(base, head)])


def _comparable(head: RunHead, new: RunHead) -> bool:
    """Whether the first may be the base of the other."""
    return (
        head.id != new.id
        and head.done > 0
        and (head.created_s or 0.0) <= (new.created_s or 0.0)
        and same_series(head, new)
    )


def _check(query: Query, choices: Choices) -> None:
    for name, plural in (*_FIELDS.items(), ("base_variant", "variants")):
        value = getattr(query, name)
        known = [str(one) for one in getattr(choices, plural)]
        if value and value != ALL and value not in known:
            listed = ", ".join(cut(sanitise(one), 40) for one in known[:20])
            raise NotFound(
                f"There is no {name} {shown(value)} in this database.",
                f"There are: {listed}." if known else "",
            )


def controls(
    context: Context, to: Link, names: Sequence[str], optional: Sequence[str] = ()
) -> Controls:
    """The droplists of these names; `optional` ones may be left open (`any`)."""
    if context.exported:
        names = [name for name in names if name == "filter"]
    found = [_choice(context, name, name in optional) for name in names]
    made = tuple(choice for choice in found if choice is not None)
    kept = {choice.name for choice in made}
    gone = {*kept, "page", "before", *(("from", "to") if "range" in kept else ())}
    hidden = tuple(item for item in context.query.params if item[0] not in gone)
    return Controls(to, made, hidden)


def _choice(context: Context, name: str, optional: bool) -> Choice | None:
    query, chosen = context.query, getattr(context.chosen, name)
    if name in ("base", "new"):
        return _runs(context, name)
    if name == "across":
        return _across(query.across)
    if name == "common":
        return Choice(name, "Only common cases", query.common, kind="check")
    if name == "filter":
        return Choice(name, "Filter", query.filter, kind="search")
    if name == "granularity":
        return Choice(name, "Granularity", chosen, tuple(GRANULARITIES.items()))
    if name == "range":
        zoomed = [("", "as zoomed")] if context.chosen.since or context.chosen.until else []
        return Choice(name, "Time range", chosen, (*zoomed, *RANGES.items()))
    if name == "base_variant":
        known = ((one, cut(sanitise(one), 40)) for one in context.choices.variants)
        return Choice(name, "Compare with variant", query.base_variant, (("", "same"), *known))
    return _named(context, name, chosen, optional)


def _across(chosen: str) -> Choice:
    asked = {name: text.partition(":")[0] for name, text in ACROSS.items() if name not in ALWAYS}
    options = [("", "nothing"), *asked.items(), (",".join(asked), "all of these")]
    if chosen not in [value for value, _ in options]:
        options.append((chosen, chosen.replace(",", ", ")))
    return Choice("across", "Allow differences in", chosen, tuple(options))


def _named(context: Context, name: str, chosen: str, optional: bool) -> Choice | None:
    values: Mapping[str, str] | Sequence[object] = getattr(context.choices, _FIELDS[name])
    if name == "machine" and isinstance(values, Mapping):
        options = [(key, machine_title(key, values[key])) for key in _listed(values, chosen)]
    else:
        known = _listed([str(one) for one in values], chosen)
        options = [(one, cut(sanitise(one), 40)) for one in known]
    if name in _SELDOM and len(options) < 2:
        return None
    if name == "threads":
        options = [(value, "library's choice" if value == "0" else value) for value, _ in options]
    if optional or len(options) != 1:
        options = [(ALL, "all"), *options]
    value = chosen or (ALL if options and options[0][0] == ALL else "")
    return Choice(name, LABELS[name], value, tuple(options))


def _listed(values: Iterable[str], chosen: str) -> list[str]:
    """The first of them, and the chosen one: a page must not grow with all there ever was."""
    every = list(values)
    found = every[:LISTED]
    return found if chosen in found or chosen not in every else [*found, chosen]


def _runs(context: Context, name: str) -> Choice:
    head = context.new if name == "new" else context.base
    listed = list(context.heads)
    if head is not None and all(one.id != head.id for one in listed):
        listed.insert(0, head)
    options = [(one.id, run_title(one)) for one in listed]
    if head is None:
        options.insert(0, ("", "none"))
    label = "New run" if name == "new" else "Base run"
    if len(context.heads) >= LISTED:  # the list of runs is searched for older ones
        label += f", of the newest {LISTED}"
    return Choice(name, label, head.id if head else "", tuple(options))

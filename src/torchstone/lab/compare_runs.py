"""`torchstone compare`: two stored runs, or their files, set against each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from torchstone.records import ChangeKind, RunComparison, RunHead, Verdict
from torchstone.store import open_store
from torchstone.store.location import locate
from torchstone.track import (
    Found,
    Side,
    Terms,
    compare,
    default_floors,
    is_file,
    resolve,
    stored_floors,
    stored_heads,
    stored_side,
)

if TYPE_CHECKING:
    from torchstone.store import Store

SLOWER, MAYBE_SLOWER, FAIL = "slower", "maybe-slower", "fail"
GATES = (SLOWER, MAYBE_SLOWER, FAIL)
"""What `--fail-on` takes."""


def compare_runs(
    base: str, new: str, db: str | None = None, terms: Terms | None = None
) -> RunComparison:
    """The comparison of what two words mean; `refused` says why there is none."""
    terms = terms or Terms()
    with ExitStack() as stack:
        store = _store(db, needed=not (is_file(base) and is_file(new)))
        if store is not None:
            stack.enter_context(store)
            stack.enter_context(store.snapshot())
        heads = stored_heads(store) if store is not None else []
        found_new, new_side = _side(new, store, heads, None)
        found_base, base_side = _side(base, store, heads, new_side.head)
        terms = replace(terms, across=terms.across | found_base.across | found_new.across)
        floors = stored_floors(store) if store is not None else default_floors
        notes = [found.note for found in (found_base, found_new) if found.note]
        return compare(base_side, new_side, terms, floors, list(dict.fromkeys(notes)))


def gate(comparison: RunComparison, fail_on: Iterable[str]) -> bool:
    """Whether something happened that must not: a case or group slower, one that is not shown to be
    no slower, or a case newly failing."""
    wanted = set(fail_on)
    verdicts = {group.verdict for group in comparison.groups if group.paired}
    verdicts |= {case.verdict for case in comparison.cases if case.paired}
    if SLOWER in wanted and Verdict.SLOWER in verdicts:
        return True
    if MAYBE_SLOWER in wanted and not all(v is not None and v.excludes_slower for v in verdicts):
        return True
    return FAIL in wanted and any(
        case.kind is ChangeKind.NEWLY_FAILING for case in comparison.cases
    )


def _store(db: str | None, *, needed: bool) -> Store | None:
    """Two files need no database; what it knows of their machine is used where there is one."""
    if not needed and locate(db).is_empty_file:
        return None
    return open_store(db, create=False, read_only=True)


def _side(
    word: str, store: Store | None, heads: Sequence[RunHead], beside: RunHead | None
) -> tuple[Found, Side]:
    found = resolve(word, heads, beside)
    if found.path or store is None:
        from torchstone.track.documents import read_document  # only where there is a file

        return found, read_document(found.path)
    return found, stored_side(store, found.run_id)

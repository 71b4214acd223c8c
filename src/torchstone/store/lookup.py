"""Finding what is stored: by id, by the beginning of an id, a run by its label, an arm by what it
does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, func, select

from torchstone.records import ArmSpec, UsageError
from torchstone.store import schema
from torchstone.store.engine import MAX_NAMED
from torchstone.store.limits import LAST, seconds_of

NEAR_AMONG = 1_000
"""Newest ids among which a near miss is looked for; comparing texts is slow."""


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of stored thing, with the words of its errors."""

    table: Table
    noun: str
    make: str
    see: str = "See what is stored with `torchstone list`."


RESULT = Kind(schema.result, "result", "Make one with `torchstone bench`.")
RUN, PROFILE, LEDGER, TUNING, SCALING = (
    Kind(table, table.name, make, f"See what is stored with `torchstone list {table.name}s`.")
    for table, make in (
        (schema.run, "Make one with `torchstone run`."),
        (schema.profile, "Take one with `torchstone profile`."),
        (schema.ledger, "Make one with `torchstone explain`."),
        (schema.tuning, "Make one with `torchstone tune`."),
        (schema.scaling, "Make one with `torchstone scaling`."),
    )
)


class Row(NamedTuple):
    """Where something is, its id, and what to tell whoever asked for it by an ambiguous name."""

    seq: int
    id: str
    kind: Kind = RESULT
    note: str = ""


def resolve(connection: Connection, wanted: str, kind: Kind = RESULT) -> Row:
    """The one that `wanted` means: its id, a run's label, or the only id that begins so.

    `UsageError` if none or several.
    """
    if wanted == LAST:
        return _newest(connection, kind)
    _check_text(wanted, kind)
    found = exact(connection, kind, wanted)
    if found is None and kind is RUN:
        found = _labelled(connection, wanted)
    return found or _by_start(connection, (kind,), wanted)


def resolve_any(connection: Connection, wanted: str) -> Row:
    """The run or the result that `wanted` means. `last` is what was stored last.

    A result that belongs to a run stands for its run there.
    """
    if wanted == LAST:
        return _newest_of_all(connection)
    _check_text(wanted, RESULT)
    return (
        exact(connection, RUN, wanted)
        or exact(connection, RESULT, wanted)
        or _labelled(connection, wanted)
        or _by_start(connection, (RESULT, RUN), wanted)
    )


def _newest(connection: Connection, kind: Kind) -> Row:
    table = kind.table
    newest = select(table.c.seq, table.c.id).order_by(table.c.seq.desc()).limit(1)
    found = connection.execute(newest).first()
    if found is None:
        raise UsageError(f"No {kind.noun} is stored yet.", kind.make)
    return Row(*found, kind)


def _newest_of_all(connection: Connection) -> Row:
    """By time, because rows of two tables have no common order."""
    result, run, case = schema.result, schema.run, schema.run_case
    alone = ~select(case.c.seq).where(case.c.result == result.c.seq).exists()
    newest_run = select(run.c.seq, run.c.id, run.c.created_s).order_by(run.c.seq.desc())
    last_run = connection.execute(newest_run.limit(1)).first()
    if last_run is None:
        return _newest(connection, RESULT)
    last_result = connection.execute(
        select(result.c.seq, result.c.id, result.c.created_s)
        .where(alone, schema.of_no_run())
        .order_by(result.c.seq.desc())
        .limit(1)
    ).first()
    last_case = connection.execute(
        select(run.c.seq, run.c.id, case.c.created)
        .join(case, case.c.run == run.c.seq)
        .order_by(case.c.seq.desc())
        .limit(1)
    ).first()
    times: list[tuple[float, int, str]] = [(last_run.created_s or 0.0, last_run.seq, last_run.id)]
    if last_case is not None:
        times.append((seconds_of(last_case.created) or 0.0, last_case.seq, last_case.id))
    moment, seq, run_id = max(times)
    if last_result is not None and (last_result.created_s or 0.0) > moment:
        return Row(last_result.seq, last_result.id)
    return Row(seq, run_id, RUN)


def _check_text(wanted: str, kind: Kind) -> None:
    if not wanted:
        raise UsageError(f"The id of a {kind.noun} is empty.", kind.see)
    if not wanted.isprintable():  # no stored id is like that, and not every such text is bindable
        raise UsageError(f"{wanted!r} is not the id of a {kind.noun}.", kind.see)


def exact(connection: Connection, kind: Kind, wanted: str) -> Row | None:
    """The one of exactly that id."""
    table = kind.table
    seq = connection.scalar(select(table.c.seq).where(table.c.id == wanted))
    return None if seq is None else Row(seq, wanted, kind)


def refuse_known(connection: Connection, kind: Kind, wanted: str) -> None:
    """What is stored never changes, so an id is taken once."""
    if exact(connection, kind, wanted) is not None:
        see = f"See it with `torchstone show {wanted}`." if kind in (RESULT, RUN) else kind.see
        raise UsageError(
            f"A {kind.noun} {wanted} is already stored; {kind.noun}s never change.", see
        )


def _labelled(connection: Connection, wanted: str) -> Row | None:
    """The newest run of that label, with a word about the others."""
    table = schema.run
    query = select(table.c.seq, table.c.id).where(table.c.label == wanted)
    found = connection.execute(query.order_by(table.c.seq.desc())).all()
    if not found:
        return None
    note = ""
    if len(found) > 1:
        ids = _named([row.id for row in found[1:]])
        note = f"newest of {len(found)} runs labelled {wanted!r}; older: {ids}"
    return Row(found[0].seq, found[0].id, RUN, note)


def _named(ids: Sequence[str]) -> str:
    return ", ".join(ids[:MAX_NAMED]) + (", ..." if len(ids) > MAX_NAMED else "")


def _by_start(connection: Connection, kinds: Sequence[Kind], wanted: str) -> Row:
    """The only one whose id begins so; an error that helps where there is none, or several."""
    matches: list[Row] = []
    for kind in kinds:
        table = kind.table
        # Not LIKE: it ignores case in one database and not in the other.
        begins = func.substr(table.c.id, 1, len(wanted)) == wanted
        newest = select(table.c.seq, table.c.id).where(begins).order_by(table.c.seq.desc())
        matches += [Row(*row, kind) for row in connection.execute(newest.limit(MAX_NAMED + 1))]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise _unknown(connection, kinds, wanted)
    nouns = " or ".join(f"{kind.noun}s" for kind in kinds)
    named = _named([row.id for row in matches])
    raise UsageError(
        f"Several {nouns} begin with {wanted!r}: {named}.", "Give more characters of the id."
    )


def _unknown(connection: Connection, kinds: Sequence[Kind], wanted: str) -> UsageError:
    from difflib import get_close_matches  # only on the way to an error

    ids: list[str] = []
    for kind in kinds:
        columns = (kind.table.c.id, kind.table.c.label) if kind is RUN else (kind.table.c.id,)
        newest = select(*columns).order_by(kind.table.c.seq.desc()).limit(NEAR_AMONG)
        ids += [text for row in connection.execute(newest) for text in row if text]
    near = get_close_matches(wanted, ids, n=3, cutoff=0.5)
    if not near:  # a beginning with a slip in it is far from the whole id, but near to its start
        starts = {i[: len(wanted)]: i for i in reversed(ids)}
        near = [starts[s] for s in get_close_matches(wanted, list(starts), n=3, cutoff=0.5)]
    hint = f" Nearest: {', '.join(dict.fromkeys(near))}." if near else ""
    noun = " or ".join(kind.noun for kind in kinds)
    return UsageError(f"There is no {noun} {wanted[:60]!r}.{hint}", kinds[0].see)


# Which arms are the same work, however they were named and whatever they were measured for.


def same_work(one: ArmSpec, other: ArmSpec) -> bool:
    """Whether a look at one arm says something of the other.

    A look is at steps of one shape, also where a measurement went through several in turn.
    """
    return replace(one, name=other.name, seed=other.seed, shapes=other.shapes) == other


def key_of(arm: ArmSpec) -> dict[str, str]:
    """The values of the columns that tables about an arm have."""
    return {name: getattr(arm, name) for name in schema.ARM_KEY}


def matching(table: Table, arm: ArmSpec) -> list[ColumnElement[bool]]:
    """Rows whose arm may be the same work: threads and settings are yet to be compared."""
    return [table.c[name] == value for name, value in key_of(arm).items()]

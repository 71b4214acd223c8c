"""What BASE and NEW mean: a run, or something that has runs, of which the newest is meant."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchstone.records import RunHead, UsageError
from torchstone.track import terms
from torchstone.track.terms import Side

if TYPE_CHECKING:
    from torchstone.store import Store


LEAST_COMMIT = 4
"""Digits that a commit is named by at least, as in git."""
MOST_NAMED = 5
NEAR_AMONG = 1_000
"""Newest runs among which a near miss is looked for; comparing texts is slow."""
LATEST = ("latest", "last")
RUN, LABEL, COMMIT, BRANCH = "run", "label", "commit", "branch"
TORCH, MACHINE, FILE = "torch", "machine", "file"
KINDS = (RUN, LABEL, COMMIT, BRANCH, TORCH, MACHINE, FILE)
_EXPLICIT = re.compile(rf"({'|'.join(KINDS)}):(.+)", re.S)
_BEFORE = re.compile(rf"(?:{'|'.join(LATEST)})(?:~(\d{{1,6}}))?")
_SEE = "`torchstone list runs` lists runs; {} say what a word means."
_KINDS_TOLD = "run:, label:, commit:, branch:, torch:, machine:"

_Thing = tuple[str, str, list[RunHead]]
"""A kind, the name of a thing of that kind, and its runs."""


_ASKED = {TORCH: terms.TORCH, MACHINE: terms.MACHINES}
"""Who names a run by its torch or its machine asks how those compare."""


@dataclass(frozen=True)
class Found:
    """The run that a word means, by its id, or the file; how it was named, and what to know."""

    kind: str
    run_id: str = ""
    path: str = ""
    note: str = ""

    @property
    def across(self) -> frozenset[str]:
        """What may differ between two runs because one of them was named so."""
        return frozenset({_ASKED[self.kind]}) if self.kind in _ASKED else frozenset()


def is_file(word: str) -> bool:
    """Whether the word can only mean a file: named so, or with a folder or `.json` in it."""
    if word.startswith(f"{FILE}:"):
        return True
    return not _EXPLICIT.fullmatch(word) and _looks_like_file(word) and os.path.isfile(word)


def resolve(
    word: str, heads: Sequence[RunHead], beside: RunHead | None = None, *, files: bool = True
) -> Found:
    """The run that a word means among `heads` (newest first); `UsageError` if none or several.

    `latest~2` is the second before the newest, among the whole runs of the series of `beside`, or
    without it of the newest run (`same_series`), as on the dashboard. A whole id is that run,
    whatever else is called so.
    Without `files` no word is a file, and none is looked for: a reader of pages may name runs.
    """
    if not word or not word.isprintable():
        raise UsageError(f"{word[:60]!r} does not name a run.", _see(files))
    if files and is_file(word):
        return _file(word.removeprefix(f"{FILE}:"))
    if not heads:
        raise UsageError("No run is stored yet.", "Make one with `torchstone run`.")
    before = _BEFORE.fullmatch(word)
    if before:
        return _latest(word, int(before[1] or 0), heads, beside)
    explicit = _EXPLICIT.fullmatch(word)
    kind, value = explicit.groups() if explicit else ("", word)
    if not kind and any(head.id == word for head in heads):
        return Found(RUN, word)
    kinds = [one for one in KINDS if one != FILE and kind in ("", one)]
    things = [
        (one, thing, found)
        for one in kinds
        for thing, found in _things(one, value, heads, bool(kind)).items()
    ]
    if not things:
        raise _unknown(value, heads, kind, files)
    if len({found[0].id for _, _, found in things}) > 1:
        raise _several(word, things)
    chosen, thing, found = things[0]
    return Found(chosen, found[0].id, note=_note(chosen, thing, found))


def _several(word: str, things: Sequence[_Thing]) -> UsageError:
    listed = ", ".join(
        f"{one}:{thing} (run {found[0].id})" for one, thing, found in things[:MOST_NAMED]
    )
    more = ", ..." if len(things) > MOST_NAMED else ""
    return UsageError(f"{word[:60]!r} means several things: {listed}{more}.", "Write one of them.")


def _looks_like_file(word: str) -> bool:
    return word.endswith(".json") or os.sep in word


def _file(path: str) -> Found:
    if not os.path.isfile(path):
        raise UsageError(f"There is no file {path[:200]!r}.", "Name a file of `--json`.")
    return Found(FILE, path=path)


def _latest(word: str, number: int, heads: Sequence[RunHead], beside: RunHead | None) -> Found:
    anchor = beside or newest_whole(heads) or heads[0]
    line = whole_ones([head for head in heads if same_series(head, anchor)])
    if number >= len(line):
        many = "is no run" if not line else f"are {len(line)} runs" if len(line) > 1 else "is 1 run"
        raise UsageError(
            f"There is no {word}: there {many} of the machine, the branch and the suites of "
            f"{anchor.id or 'the file'}.",
            "`torchstone list runs` lists all runs.",
        )
    return Found(LATEST[0], line[number].id)


def same_series(one: RunHead, other: RunHead) -> bool:
    """Whether two runs are points of one series: machine, branch and origin are the same, and they
    have a suite in common."""
    return (
        one.machine_id == other.machine_id
        and one.branch == other.branch
        and one.origin == other.origin
        and bool({*one.suites} & {*other.suites})
    )


def whole_ones(heads: Sequence[RunHead]) -> list[RunHead]:
    """Those that got to their end; else those that ended with something to show; else all.

    Half a run looks like a worse one, and one that is being measured is not known yet.
    """
    ended = [head for head in heads if head.done and head.state != "running"]
    whole = [head for head in ended if head.state == "complete"]
    return whole or ended or [head for head in heads if head.done] or list(heads)


def newest_whole(heads: Sequence[RunHead]) -> RunHead | None:
    """The newest of these."""
    return next(iter(whole_ones(heads)), None)


def _things(
    kind: str, word: str, heads: Sequence[RunHead], asked: bool
) -> dict[str, list[RunHead]]:
    """By name, the runs of each thing of that kind that the word fits; an exact name wins."""
    name, fits = _RULES[kind]
    found: dict[str, list[RunHead]] = {}
    for head in heads:
        thing = name(head)
        if thing and (thing == word or fits(head, word, asked)):
            found.setdefault(thing, []).append(head)
    return {word: found[word]} if word in found else found


def _begins_id(head: RunHead, word: str, asked: bool) -> bool:
    return head.id.startswith(word)


def _begins_commit(head: RunHead, word: str, asked: bool) -> bool:
    return len(word) >= LEAST_COMMIT and head.commit.lower().startswith(word.lower())


def _begins_version(head: RunHead, word: str, asked: bool) -> bool:
    """`2.13` fits 2.13.0+cpu, and not 2.130."""
    return head.torch.startswith(word) and head.torch[len(word) : len(word) + 1] in (".", "+")


def _is_machine(head: RunHead, word: str, asked: bool) -> bool:
    """The start of its id or its whole description; when asked for, any part of the latter."""
    begins = len(word) >= LEAST_COMMIT and head.machine_id.startswith(word)
    described = head.machine.lower()
    return begins or described == word.lower() or (asked and word.lower() in described)


def _never(head: RunHead, word: str, asked: bool) -> bool:
    return False


_Name = Callable[[RunHead], str]
_Fits = Callable[[RunHead, str, bool], bool]
_RULES: dict[str, tuple[_Name, _Fits]] = {
    RUN: (lambda head: head.id, _begins_id),
    LABEL: (lambda head: head.label, _never),
    COMMIT: (lambda head: head.commit, _begins_commit),
    BRANCH: (lambda head: head.branch, _never),
    TORCH: (lambda head: head.torch, _begins_version),
    MACHINE: (lambda head: head.machine_id, _is_machine),
}


def _note(kind: str, thing: str, found: Sequence[RunHead]) -> str:
    """That there are more runs, where one would expect only one."""
    if kind not in (LABEL, COMMIT) or len(found) == 1:
        return ""
    shown = thing[:10] if kind == COMMIT else repr(thing)
    older = ", ".join(head.id for head in found[1 : MOST_NAMED + 1])
    more = ", ..." if len(found) > MOST_NAMED + 1 else ""
    return (
        f"run {found[0].id} is the newest of {len(found)} of {kind} {shown}; older: {older}{more}"
    )


def _unknown(value: str, heads: Sequence[RunHead], kind: str, files: bool) -> UsageError:
    from difflib import get_close_matches  # only on the way to an error

    names: dict[str, str] = {}
    for one in [rule for rule in _RULES if kind in ("", rule)]:
        for thing in filter(None, map(_RULES[one][0], heads[:NEAR_AMONG])):
            names.setdefault(thing, f"{one}:{thing}")
            # A beginning with a slip in it is far from the whole name, but near to its start.
            names.setdefault(thing[: max(len(value), LEAST_COMMIT)], f"{one}:{thing}")
    near = get_close_matches(value, names, n=3, cutoff=0.6)
    named = dict.fromkeys(names[one] for one in near)
    hint = f" Nearest: {', '.join(named)}." if near else ""
    what = kind or "run, label, commit, branch, torch or machine"
    file = ", nor such a file" if files and not kind and _looks_like_file(value) else ""
    return UsageError(f"There is no {what} {value[:60]!r} here{file}.{hint}", _see(files))


def _see(files: bool) -> str:
    return _SEE.format(f"{_KINDS_TOLD} and file:" if files else _KINDS_TOLD)


# Runs out of the store, as comparisons want them: the one place that asks it.


MOST_RUNS = 20_000
"""Newest runs among which a word is looked for: fifty years of nightlies, or one busy team's."""


def stored_heads(store: Store) -> list[RunHead]:
    """Every run, newest first, without its cases."""
    return store.run_heads(limit=MOST_RUNS)


def stored_side(store: Store, run_id: str) -> Side:
    """One run with the figures of its cases, all of one state of the store."""
    with store.snapshot():
        run = store.load_run(run_id, plan=False)
        return Side(
            store.run_head(run_id),
            store.planned_cases(run_id),
            run.method,
            run.version,
            tuple(store.run_groups(run_id)),
        )

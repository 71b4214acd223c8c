"""What is wrong with a profile, counted, with an example each."""

from __future__ import annotations

SENTENCES = {
    "no_time": "{n} left out: time stamp or duration is no number",
    "no_event": "{n} left out: no name or no thread",
    "negative": "{n} left out: the duration is negative",
    "zero_time": "{n} left out: the time stamp is zero, far from all others",
    "end_alone": "{n} left out: an end without a beginning",
    "unnamed_end": "{n} with an end that names another event than the one that is open",
    "no_end": "{n} without an end, taken to last until the last time stamp of the thread",
    "longer": "{n} cut: longer than the span that it begins in",
    "overlap": "{n} cut: overlapping the span that it begins in",
    "mark": "{n} cut: a mark begins and ends within the calls that make it",
    "rounding": "{n} cut: overlapping another by at most 1 µs, as rounding does",
    "backwards": "{n} earlier than the one before, taken to be at the same time",
    "weight": "{n} left out: the weight is negative or no number",
    "unit": "{n} left out: another unit than that of the first",
}
"""By kind. `mark` and `rounding` are notes, the others are problems."""
NOTES = frozenset({"mark", "rounding"})


_BRIEF = 60
_ONE = {"events": "event", "spans": "span", "entries": "entry", "functions": "function"}


def number(count: int, what: str) -> str:
    """A count and what is counted."""
    return f"{count:,} {_ONE[what] if count == 1 else what}"


def brief(value: object) -> str:
    """A value as a short text: a name between quotes, cut where it is long; no nest of lists."""
    if isinstance(value, str):
        return repr(value if len(value) <= _BRIEF else value[: _BRIEF - 1] + "…")
    if value is None or isinstance(value, (int, float)):
        return f"{value!r:.{_BRIEF}}"
    return f"a {type(value).__name__}"


class Faults:
    """A tally of faults by kind."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._examples: dict[str, str] = {}
        self._said: list[str] = []

    def add(self, kind: str, example: str, count: int = 1) -> None:
        """One more of a kind; the first example is kept."""
        self._counts[kind] = self._counts.get(kind, 0) + count
        self._examples.setdefault(kind, example)

    def say(self, sentence: str) -> None:
        """A problem that needs no counting."""
        self._said.append(sentence)

    def count(self, kind: str) -> int:
        """How many of a kind."""
        return self._counts.get(kind, 0)

    def sentences(self, what: str, notes: bool = False) -> tuple[str, ...]:
        """A sentence for each kind; `what` is what is counted, such as `events`."""
        said = () if notes else tuple(self._said)
        return said + tuple(
            f"{SENTENCES[kind].format(n=number(count, what))} (such as {self._examples[kind]})."
            for kind, count in self._counts.items()
            if (kind in NOTES) == notes
        )

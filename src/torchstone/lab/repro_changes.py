"""What is not as it was when a stored result is measured again: code, libraries, machine, model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torchstone.records import Check, Environment, Level, Measurement, Outcome, Result

RULE = "as-stored"
"""The name under which JSON has these among its checks."""
NOT_THE_SAME = "it is not the same model: from the same seed its {what} differ"
_SHORT = 12
"""Digits of a commit or a hash in a sentence."""


@dataclass(frozen=True)
class Change:
    """One thing that two sessions of the same arms differ in."""

    what: str
    stored: str
    new: str
    arms: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """`torch was 2.12.0 and is 2.13.0`."""
        return f"{self.what} was {self.stored} and is {self.new}"


def changes(stored: Result, new: Result) -> tuple[Change, ...]:
    """What both sessions say of themselves and say differently, once for all arms it holds for."""
    found: dict[tuple[str, str, str], list[str]] = {}
    if stored.version and stored.version != new.version:
        found["torchstone", stored.version, new.version] = [arm.arm.name for arm in new.arms]
    for old, again in zip(stored.arms, new.arms, strict=True):
        for key in _of_arm(old, again):
            found.setdefault(key, []).append(again.arm.name)
    return tuple(Change(*key, tuple(arms)) for key, arms in found.items())


def other_models(stored: Result, new: Result) -> dict[str, str]:
    """By name, the arms that are not what they were, and why no time of theirs is compared.

    An arm whose answers vary is left out: its factory may draw other weights in every process.
    """
    found = {}
    for old, again in zip(stored.arms, new.arms, strict=True):
        parts = [name.split()[0] for name, _, _ in _of_model(old, again)]
        if parts and Outcome.NONDETERMINISTIC not in (old.outcome, again.outcome):
            found[again.arm.name] = NOT_THE_SAME.format(what=" and ".join(parts))
    return found


def as_checks(found: tuple[Change, ...], others: Mapping[str, str]) -> tuple[Check, ...]:
    """The same for JSON, among the checks."""
    notes = [Check(RULE, Level.NOTE, f"{c.sentence}.", arms=c.arms) for c in found]
    fails = [
        Check(RULE, Level.FAIL, f"No time of {name} is compared: {why}.", {}, (name,))
        for name, why in others.items()
    ]
    return (*notes, *fails)


def _of_arm(old: Measurement, new: Measurement) -> Iterator[tuple[str, str, str]]:
    if old.environment is not None and new.environment is not None:
        was, now = _facts(old.environment), _facts(new.environment)
        for what, before in was.items():
            if before and now[what] and before != now[what]:
                yield what, before, now[what]
    yield from _of_model(old, new)


def _facts(environment: Environment) -> dict[str, str]:
    """What decides a time, in words; empty where it is not known."""
    git = environment.git
    dirty = " with changed files" if git is not None and git.dirty else ""
    model = environment.cpu.get("model", "")
    return {
        "commit": "not in a repository" if git is None else git.commit[:_SHORT] + dirty,
        "the target's file (its hash)": environment.source[:_SHORT],
        "torch": environment.torch.get("version", ""),
        "python": environment.python.get("version", ""),
        "machine": f"{environment.machine_id} ({model})" if model else environment.machine_id,
        "threads": ", ".join(f"{name} {n}" for name, n in sorted(environment.threads.items())),
        "allocator": environment.allocator,
    }


def _of_model(old: Measurement, new: Measurement) -> Iterator[tuple[str, str, str]]:
    """Weights and inputs, where both were drawn from the same seed."""
    if old.contract is None or new.contract is None or old.contract.seed != new.contract.seed:
        return
    for what in ("weights", "inputs"):
        was, now = (getattr(c, f"{what}_hash") for c in (old.contract, new.contract))
        if was and now and was != now:
            yield f"{what} (their hash)", was[:_SHORT], now[:_SHORT]

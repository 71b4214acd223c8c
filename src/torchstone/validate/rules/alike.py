"""Do the arms differ only in what they were meant to differ in?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torchstone.records import ArmSpec, Check, Environment, Level, Measurement, Result
from torchstone.validate.base import FunctionRule
from torchstone.validate.facts import threads
from torchstone.validate.words import name_of

NAME = "alike"


@dataclass(frozen=True)
class _Trait:
    """Something in which arms may differ, and the settings of an arm that ask for it."""

    what: str
    value: str
    asked_by: tuple[str, ...]


def _judge(result: Result) -> Iterator[Check]:
    if not result.arms or result.arms[0].environment is None:
        return
    base = result.arms[0]
    for arm in result.arms[1:]:
        if arm.environment is not None:
            yield from _compare(base, arm)


def _compare(base: Measurement, arm: Measurement) -> Iterator[Check]:
    who = (base.arm.name, arm.arm.name)
    clean = True
    if _machine(base) and _machine(arm) and _machine(base) != _machine(arm):
        clean = False
        yield Check(
            NAME,
            Level.FAIL,
            f"{name_of(arm)} ran on another machine ({_machine(arm)}) than {name_of(base)} "
            f"({_machine(base)}), so nothing is said of the two. Measure both on one machine.",
            arms=(arm.arm.name,),
        )
    differences = list(_unasked(base, arm))
    if differences:
        clean = False
        yield Check(
            NAME,
            Level.WARN,
            f"{name_of(arm)} differs from {name_of(base)} in more than was asked for: "
            f"{'; '.join(differences)}. Set it alike for both arms, or name it in --arm if it is "
            "what you compare.",
            {"differences": float(len(differences))},
            who,
        )
    if clean:
        text = f"{name_of(arm)} and {name_of(base)} ran under like conditions."
        yield Check(NAME, Level.OK, text, {"differences": 0.0}, who)


def _machine(arm: Measurement) -> str:
    return arm.environment.machine_id if arm.environment else ""


def _unasked(base: Measurement, arm: Measurement) -> Iterator[str]:
    """Differences that no setting of the two arms asks for; unknown values are not judged."""
    for one, other in zip(_traits(base), _traits(arm), strict=True):
        known = one.value and other.value
        if known and one.value != other.value and not _asked(one, base.arm, arm.arm):
            yield f"{one.what} {other.value} against {one.value}"


def _asked(trait: _Trait, base: ArmSpec, arm: ArmSpec) -> bool:
    return any(getattr(base, field) != getattr(arm, field) for field in trait.asked_by)


def _traits(arm: Measurement) -> tuple[_Trait, ...]:
    environment = arm.environment or Environment("")
    found = threads(arm)
    # An interpreter brings its own libraries; a variable such as PYTHONPATH or OMP_NUM_THREADS
    # may change any of these.
    return (
        _Trait("torch", environment.torch.get("version", ""), ("python", "env")),
        _Trait("torch's build", environment.torch.get("git", ""), ("python", "env")),
        _Trait("Python", environment.python.get("version", ""), ("python", "env")),
        _Trait("threads", "" if found is None else str(found), ("threads", "env")),
        _Trait("allocator", _allocator(environment), ("allocator", "env")),
    )


def _allocator(environment: Environment) -> str:
    """The one asked for, and the library that is truly loaded where that is another."""
    loaded = environment.os.get("malloc", "")
    if loaded in ("", "system", environment.allocator):
        return environment.allocator
    return f"{environment.allocator} ({loaded} is loaded)"


ALIKE = FunctionRule(NAME, "the method: one difference at a time, on one machine", _judge)

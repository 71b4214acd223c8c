"""What a person asks for, checked and made into arms. Nothing has been started yet."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchstone import stats
from torchstone.conductor import EFFORTS, FAST, USUAL, Settings
from torchstone.conductor.run import ADOPTED, CHECKED, DECIDED
from torchstone.lab.secrets import public_arm_text, public_env
from torchstone.machine.interpreters import resolve_interpreter
from torchstone.machine.memory import allocator_environment, usual_allocator
from torchstone.records import (
    ALLOCATORS,
    DYNAMIC_SHAPES,
    MODES,
    PRECISIONS,
    ArmSpec,
    Method,
    UsageError,
)
from torchstone.variants import check_variant
from torchstone.workloads import check_target

_BACKENDS = "import torch._dynamo as d; print('\\n'.join(d.list_backends(exclude_tags=())))"
_backends_of: dict[str, list[str]] = {}
_ARM_KEYS = (
    "name",
    "target",
    "variant",
    "mode",
    "precision",
    "device",
    "threads",
    "python",
    "allocator",
)


@dataclass(frozen=True)
class BenchRequest:
    """`torchstone bench`, as asked. An empty `allocator` leaves the choice to us."""

    targets: tuple[str, ...]
    vs: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    mode: str = "inference"
    precision: str = "fp32"
    device: str = "cpu"
    threads: int | None = None
    python: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    allocator: str = ""
    label: str = ""
    settings: Settings = field(default_factory=Settings)
    sweep: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Arguments of the factory, `threads` or `precision`, each with its values (`lab.sweep`)."""
    commands: tuple[str, ...] = ()
    """Whole commands as arms; there are no targets then."""


def make_arms(request: BenchRequest) -> tuple[ArmSpec, ...]:
    """Every target in eager and under each `--vs`, then the arms given one by one."""
    if not request.targets:
        raise UsageError("There is nothing to measure.", "Name a target: path.py:make.")
    common = ArmSpec(
        name="",
        mode=request.mode,
        precision=request.precision,
        device=request.device,
        threads=request.threads,
        python=request.python,
        env=request.env,
        allocator=request.allocator or usual_allocator(),
        seed=request.settings.seed,
    )
    short = _short_names(request.targets)
    arms = []
    for target in request.targets:
        for variant in ("eager", *request.vs):
            if len(request.targets) == 1:
                name = variant
            else:
                name = short[target] if not request.vs else f"{short[target]} {variant}"
            arms.append(replace(common, name=name, target=target, variant=variant))
    arms += [_explicit_arm(text, arms[0]) for text in request.arms]
    arms = distinct(arms)
    for arm in arms:
        check_arm(arm)
    return tuple(arms)


def vary_shapes(arms: Sequence[ArmSpec]) -> tuple[ArmSpec, ...]:
    """Where one arm is compiled for dynamic shapes, all of them are given several."""
    dynamic = any("dynamic" in arm.modifiers for arm in arms)
    return tuple(replace(arm, shapes=DYNAMIC_SHAPES) if dynamic else arm for arm in arms)


def _short_names(targets: Sequence[str]) -> dict[str, str]:
    """The part after the colon where that tells targets apart, else the whole."""
    tails = [target.rpartition(":")[2] for target in targets]
    if len(set(tails)) == len(set(targets)):
        return dict(zip(targets, tails, strict=True))
    return {target: os.path.basename(target) for target in targets}


def _explicit_arm(text: str, base: ArmSpec) -> ArmSpec:
    """`name=py313 python=python3.13 env.OMP_PROC_BIND=true` on top of the first arm."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"--arm {text!r} cannot be read: {error}.", "Put values with spaces in quotes."
        ) from None
    if not words:
        raise UsageError("--arm is empty.", "Write for example --arm 'name=two threads=2'.")
    changes: dict[str, object] = {}
    env = dict(base.env)
    for word in words:
        key, equals, value = word.partition("=")
        if key.startswith("env.") and equals:
            env[key[4:]] = value
        elif not equals or key not in _ARM_KEYS:
            raise UsageError(
                f"--arm does not know {word!r}.",
                f"Write key=value with {', '.join(_ARM_KEYS)} or env.NAME.",
            )
        elif key == "threads":
            changes[key] = _threads(value)
        else:
            changes[key] = value
    name = str(changes.pop("name", "")) or public_arm_text(text)
    return replace(base, name=name, env=tuple(sorted(env.items())), **changes)  # type: ignore[arg-type]


def _threads(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise UsageError(f"threads={value} is not a number of threads.", "Give 1 or more.")
    return int(value)


def distinct(arms: list[ArmSpec]) -> list[ArmSpec]:
    """Two arms may be identical (an A/A comparison), but their names must differ."""
    named: dict[str, ArmSpec] = {}
    for arm in arms:
        name, count = arm.name, 1
        while name in named:
            count += 1
            name = f"{arm.name} #{count}"
        named[name] = replace(arm, name=name)
    return list(named.values())


def check_arm(arm: ArmSpec) -> None:
    """Refuse what cannot work, before anything is started."""
    check_choices("mode", MODES, arm.mode)
    check_choices("precision", PRECISIONS, arm.precision)
    check_choices("allocator", ALLOCATORS, arm.allocator)
    check_threads(arm.threads)
    if arm.statement is None:
        check_target(arm.target)
    check_variant(arm.variant, lambda: torch_backends(arm.python))
    allocator_environment(arm.allocator)
    if arm.python is not None:
        resolve_interpreter(arm.python)


def check_choices(what: str, known: Sequence[str], *values: str) -> None:
    """Refuse a word that is not in the list."""
    for value in values:
        if value not in known:
            names = ", ".join(filter(None, known))
            raise UsageError(f"There is no {what} {value!r}.", f"Choose from {names}.")


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads that cannot do anything."""
    if threads is not None and threads < 1:
        raise UsageError(f"--threads must be at least 1, not {threads}.", "Give 1 or more.")


def torch_backends(python: str | None) -> list[str]:
    """The compile backends that the arm's torch has registered; none without torch."""
    executable = resolve_interpreter(python) if python else sys.executable
    if not _backends_of.get(executable):  # seconds each time, and they stay as they are
        done = subprocess.run(
            [executable, "-c", _BACKENDS], capture_output=True, text=True, check=False
        )
        _backends_of[executable] = done.stdout.split()
    return _backends_of[executable]


def check_settings(settings: Settings) -> None:
    """Refuse budgets and margins that mean nothing."""
    positive = {
        "budget": settings.budget_s,
        "within": settings.within,
        "margin": settings.margin,
        "timeout": settings.step_timeout_s,
        "build timeout": settings.build_timeout_s,
    }
    if settings.total_s is not None:
        positive["total"] = settings.total_s
    for name, value in positive.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError(
                f"The {name} must be a number, not {value!r}.", "Times are in seconds: budget=5."
            )
        if not value > 0:
            raise UsageError(f"The {name} must be more than zero, not {value:g}.")
    check_choices("until", ("precise", DECIDED, CHECKED, ADOPTED), settings.until)
    for name in ("loops", "samples", "replicates"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise UsageError(f"The number of {name} must be at least 1, not {value}.")


def method_of(settings: Settings) -> Method:
    """The settings as they are kept with a result or a run."""
    return Method(
        **_shared(settings),
        replicates=settings.replicates or 0,
        definition=stats.DEFINITION,
        asked_replicates=settings.replicates,
        asked_samples=settings.samples,
    )


def settings_from(method: Method) -> Settings:
    """The settings that were kept: what was asked for, not what came of it."""
    return Settings(
        **_shared(method), replicates=method.asked_replicates, samples=method.asked_samples
    )


def _shared(settings: Settings | Method) -> dict[str, Any]:
    """What is asked for and kept under one name."""
    names = (
        *("budget_s", "within", "margin", "seed", "step_timeout_s", "build_timeout_s"),
        *("independent", "together", "effort", "total_s"),
    )
    return {name: getattr(settings, name) for name in names}


def command_of(request: BenchRequest) -> tuple[str, ...]:
    """The command line that asks for the same again; hidden variables by name only."""
    names = ("mode", "precision", "device", "threads", "python", "label")
    return (
        *("torchstone", "bench", *request.targets),
        *repeated("--command", request.commands),
        *repeated("--sweep", (f"{name}={','.join(values)}" for name, values in request.sweep)),
        *repeated("--vs", request.vs),
        *repeated("--arm", request.arms),
        *option_words(request, BenchRequest(()), *names),
        # Always said: which one is the usual one depends on the machine.
        *("--allocator", request.allocator or usual_allocator()),
        *env_words(request.env),
        *settings_words(request.settings),
    )


def option_words(asked: object, plain: object, *names: str) -> list[str]:
    """The options of these names that are not at their default."""
    values = {name: getattr(asked, name) for name in names}
    changed = [(name, value) for name, value in values.items() if value != getattr(plain, name)]
    return [word for name, value in changed for word in (f"--{name}", str(value))]


def repeated(flag: str, values: Iterable[str]) -> list[str]:
    """The option before each of these."""
    return [word for value in values for word in (flag, value)]


def env_words(env: Iterable[tuple[str, str]]) -> list[str]:
    """The variables of an arm; hidden ones by name only."""
    return repeated("--env", (f"{key}={value}" for key, value in public_env(env)))


_SETTING_FLAGS = {
    "budget_s": ("--budget", "{:g}s"),
    "within": ("--within", "{:g}"),
    "margin": ("--margin", "{:g}"),
    "seed": ("--seed", "{}"),
    "step_timeout_s": ("--timeout", "{:g}s"),
    "build_timeout_s": ("--build-timeout", "{:g}s"),
    "replicates": ("--replicates", "{}"),
    "independent": ("--independent",),
    "together": ("--together",),
    "effort": ("--{}",),
    "total_s": ("--total", "{:g}s"),
}


FAST_BELOW_S = 60.0
"""`--total` below this implies `--fast`."""


def with_effort(effort: str, **asked: Any) -> Settings:
    """The settings of an effort, with whatever was asked for instead of its own (not None). In
    less than a minute in all there is only time for the fast one."""
    check_choices("effort", tuple(EFFORTS), effort)
    total = asked.get("total_s")
    if effort == USUAL and total is not None and total < FAST_BELOW_S:
        effort = FAST
    does = EFFORTS[effort]
    plain = {"budget_s": does.budget_s, "within": does.within, "margin": does.margin}
    given = {name: value for name, value in asked.items() if value is not None}
    return Settings(**{**plain, **given, "effort": effort})


def settings_words(settings: Settings, plain: Settings | None = None) -> list[str]:
    """The flags of everything that is not at its default."""
    words: list[str] = []
    plain = plain or replace(with_effort(settings.effort), effort=Settings.effort)
    for name, words_of in _SETTING_FLAGS.items():
        value = getattr(settings, name)
        if value != getattr(plain, name):
            words += [part.format(value) for part in words_of]
    return words

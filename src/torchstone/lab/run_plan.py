"""What `torchstone run` will do: every case of the matrix, before anything is started."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from torchstone.conductor import Settings
from torchstone.lab.request import (
    BenchRequest,
    check_choices,
    check_settings,
    check_threads,
    command_of,
    torch_backends,
)
from torchstone.lab.secrets import public_words
from torchstone.machine.memory import allocator_environment, usual_allocator, why_not_kept
from torchstone.records import (
    ALLOCATORS,
    DYNAMIC_SHAPES,
    MODES,
    PRECISIONS,
    SCALES,
    ArmSpec,
    CaseKey,
    PlannedCase,
    UsageError,
)
from torchstone.records.format import count
from torchstone.variants import check_variant, resolve_variant
from torchstone.workloads.suites import ModelInfo, Suite, find_suite
from torchstone.workloads.suites.base import TIERS
from torchstone.workloads.suites.files import read_suite_file
from torchstone.workloads.suites.torchbench_checkout import need_checkout

QUICK_SUITES = ("huggingface", "timm", "torchbench")
"""The three suites of the PyTorch dashboard."""
FEW_CORES = 2
"""On so few cores a second compute thread shares its core with everything else that runs, and a
contended OpenMP barrier was seen to turn one speed-up into 10.5, 9.2 and 0.41."""
MOST_TOGETHER = 3
"""Variants measured beside one baseline: more, and turns of one replicate lie far apart."""
TORCHBENCH_VARIABLE = "TORCHSTONE_TORCHBENCH"
TORCHBENCH, TORCHBENCH_CHECKOUT = "torchbench", "torchbench-checkout"


@dataclass(frozen=True)
class RunRequest:
    """`torchstone run`, as asked. An empty `tier`, `modes` or `allocator` leaves the choice to
    us."""

    suites: tuple[str, ...] = ()
    variants: tuple[str, ...] = ("inductor",)
    modes: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ("fp32",)
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    pattern: str = ""
    tier: str = ""
    scale: str = "small"
    device: str = "cpu"
    threads: int | None = None
    allocator: str = ""
    label: str = ""
    torchbench: str = ""
    """The checkout that was named for this run alone; a suite must use it."""
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class Plan:
    """All cases in order, and what a reader must know about how they were chosen."""

    cases: tuple[PlannedCase, ...]
    tier: str
    notes: tuple[str, ...]


def make_plan(request: RunRequest, cores: int, spare: int = 0) -> Plan:
    """Every model of the tier × precision × mode × variant; what cannot run says why.

    `spare` of the cores are left to the engine's own processes.
    """
    _check(request)
    tier = _tier(request)
    threads, notes = _threads(request, cores, spare)
    allocator = request.allocator or usual_allocator()
    suites = _suites(request)
    _check_checkout(request, suites)
    chosen = [
        (suite, info)
        for suite in suites
        for info in suite.models()
        if _is_chosen(info, request, tier)
    ]
    _check_names(request, suites, chosen)
    cases: list[PlannedCase] = []
    for suite, info in chosen:
        for precision in request.precisions:
            for mode in request.modes or _modes(info, tier):
                for variant in request.variants:
                    scale = request.scale if request.scale in suite.scales else ""
                    key = CaseKey(
                        suite=suite.name,
                        model=info.name,
                        scale=scale,
                        mode=mode,
                        precision=precision,
                        variant=variant,
                        device=request.device,
                        threads=threads or 0,
                        allocator=allocator,
                    )
                    cases.append(_planned(suite, info, key))
    if not cases:
        raise UsageError("No model is left to run.", "Widen --only, -k, --tier or --exclude.")
    notes = (*notes, *_allocator_note(request), *_tier_note(suites, chosen, tier))
    return Plan(tuple(cases), tier, notes)


def _check(request: RunRequest) -> None:
    check_settings(request.settings)
    check_choices("mode", MODES, *request.modes)
    check_choices("precision", PRECISIONS, *request.precisions)
    check_choices("scale", SCALES, request.scale)
    check_choices("tier", ("", *TIERS), request.tier)
    check_choices("allocator", ("", *ALLOCATORS), request.allocator)
    check_threads(request.threads)
    allocator_environment(request.allocator or usual_allocator())  # one that is not installed
    try:
        re.compile(request.pattern)
    except re.error as error:
        raise UsageError(
            f"-k {request.pattern!r} is not a regular expression: {error}.",
            "Escape special characters with a backslash.",
        ) from None
    if not request.variants:
        raise UsageError("There is no variant to run.", "Give --variants inductor.")
    for variant in request.variants:
        check_variant(variant, lambda: torch_backends(None))


def _tier(request: RunRequest) -> str:
    if request.tier:
        return request.tier
    if request.only or request.pattern:
        return "full"
    return "standard" if request.suites else "quick"


def _threads(request: RunRequest, cores: int, spare: int) -> tuple[int | None, tuple[str, ...]]:
    if request.threads is not None or not request.device.startswith("cpu"):
        return request.threads, ()
    if cores > FEW_CORES and spare:
        threads, left = cores - spare, count(spare, "core")
        return threads, (f"{threads} threads of {cores} cores: {left} left to the engine",)
    if cores > FEW_CORES:
        return None, ()
    few = "1 core" if cores == 1 else f"{cores} cores"
    return 1, (f"one thread, because {few} can be used here (--threads changes it)",)


def _allocator_note(request: RunRequest) -> tuple[str, ...]:
    """Where memory is not kept although nobody asked for that."""
    why = "" if request.allocator else why_not_kept()
    return (f"the system's own allocator, because {why}",) if why else ()


def _suites(request: RunRequest) -> list[Suite]:
    """Those that were asked for, each once, else those of the quick tier.

    A checkout's models are not of the quick tier, whose compile times were measured.
    """
    if not request.suites:
        return [find_suite(name) for name in QUICK_SUITES]
    found: dict[str, Suite] = {}
    for suite in map(find_any_suite, request.suites):
        known = found.setdefault(suite.name, suite)
        if known is not suite and list(known.models()) != list(suite.models()):
            raise UsageError(f"Two suites are called {suite.name}.", "Give one another name.")
    return list(found.values())


def find_any_suite(name: str) -> Suite:
    """A suite by name, by prefix, or from a file; `torchbench` is the checkout if one is named."""
    if name.endswith((".toml", ".py")) or os.sep in name:
        return read_suite_file(name)
    if name == TORCHBENCH and os.environ.get(TORCHBENCH_VARIABLE):
        return find_suite(TORCHBENCH_CHECKOUT)
    return find_suite(name)


@contextmanager
def use_checkout(path: str) -> Iterator[None]:
    """Name the checkout to suites and workers, which look at the variable, while a run lasts."""
    if not path:
        yield
        return
    before = os.environ.get(TORCHBENCH_VARIABLE)
    os.environ[TORCHBENCH_VARIABLE] = os.path.abspath(path)
    try:
        need_checkout()
        yield
    finally:
        del os.environ[TORCHBENCH_VARIABLE]
        if before is not None:
            os.environ[TORCHBENCH_VARIABLE] = before


def _check_checkout(request: RunRequest, suites: Sequence[Suite]) -> None:
    """A checkout that no suite uses: a run without it would look like what was asked for."""
    if not request.torchbench:
        return
    for suite in suites:
        begins = f"{TORCHBENCH_CHECKOUT}:"
        listed = (info.target for info in suite.models())
        if suite.name == TORCHBENCH_CHECKOUT or any(t.startswith(begins) for t in listed):
            return
    raise UsageError(
        "--torchbench names a checkout, and no suite that it is for.",
        f"Write `torchstone run torchbench --torchbench {request.torchbench}`.",
    )


def _is_chosen(info: ModelInfo, request: RunRequest, tier: str) -> bool:
    if request.only and not any(_matches(info.name, name) for name in request.only):
        return False
    if any(_matches(info.name, name) for name in request.exclude):
        return False
    if request.pattern and not re.search(request.pattern, info.name, re.IGNORECASE):
        return False
    return TIERS.index(info.tier) <= TIERS.index(tier)


def _matches(name: str, wanted: str) -> bool:
    """The name itself, or a shell pattern for it."""
    return name == wanted or fnmatchcase(name, wanted)


def _modes(info: ModelInfo, tier: str) -> tuple[str, ...]:
    """The quick tier has its own; else inference, or what the model has."""
    if tier == "quick" and info.quick_modes:
        return info.quick_modes
    return ("inference",) if "inference" in info.modes else info.modes[:1]


def _check_names(
    request: RunRequest, suites: Sequence[Suite], chosen: Sequence[tuple[Suite, ModelInfo]]
) -> None:
    """A name that fits nothing is a slip, and silence would look like success."""
    known = [info.name for suite in suites for info in suite.models()]
    for wanted in (*request.only, *request.exclude):
        if not any(_matches(name, wanted) for name in known):
            near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.4)
            hint = f"Did you mean {' or '.join(near)}? " if near else ""
            where = ", ".join(suite.name for suite in suites)
            raise UsageError(
                f"No model of {where} is called {wanted!r}.",
                f"{hint}`torchstone list models` lists them.",
            )
    _check_tier(request, suites)
    if request.pattern and not chosen:
        raise UsageError(f"No model matches -k {request.pattern!r}.", "Try a shorter pattern.")


def _check_tier(request: RunRequest, suites: Sequence[Suite]) -> None:
    """A model asked for by --only that --tier leaves out: the two say different things."""
    if not request.tier:
        return
    for wanted in request.only:
        found = [i for suite in suites for i in suite.models() if _matches(i.name, wanted)]
        nearest = min(found, key=lambda info: TIERS.index(info.tier))
        if TIERS.index(nearest.tier) > TIERS.index(request.tier):
            raise UsageError(
                f"{nearest.name} is of the tier {nearest.tier}, and --tier {request.tier} leaves "
                "it out.",
                f"Leave --tier out: --only then chooses from all models. Or give --tier "
                f"{nearest.tier}.",
            )


def _tier_note(
    suites: Sequence[Suite], chosen: Sequence[tuple[Suite, ModelInfo]], tier: str
) -> tuple[str, ...]:
    models = sum(len(suite.models()) for suite in suites)
    if tier == "full" or len(chosen) == models:
        return ()
    return (f"{tier} tier: {len(chosen)} of {models} models (--tier full runs every model)",)


def _planned(suite: Suite, info: ModelInfo, key: CaseKey) -> PlannedCase:
    scale = f"@{key.scale}" if key.scale else ""
    target = info.target or f"{suite.prefix}:{info.name}{scale}"
    case = PlannedCase(key, target)
    why_not = info.missing
    if not why_not and key.mode not in info.modes:
        why_not = f"{info.name} has no {key.mode} mode"
    why_not = why_not or resolve_variant(key.variant).unsupported(arm_of(case)) or ""
    return replace(case, not_supported=why_not)


def arm_of(case: PlannedCase, variant: str | None = None, seed: int = 0) -> ArmSpec:
    """The case's arm, or its baseline's where `variant` is `eager`."""
    key = case.key
    name = key.variant if variant is None else variant
    return ArmSpec(
        name=name,
        target=case.target,
        variant=name,
        seed=seed,
        shapes=shapes_of(key),
        **_how(key),
    )


def _how(key: CaseKey) -> dict[str, Any]:
    """What a case asks of an arm beside target and variant."""
    names = ("mode", "precision", "device", "allocator")
    return {name: getattr(key, name) for name in names} | {"threads": key.threads or None}


def shapes_of(key: CaseKey) -> int:
    """Dynamic variants go through several shapes, and so does their baseline."""
    return DYNAMIC_SHAPES if "dynamic" in key.variant.split("+")[1:] else 1


@dataclass(frozen=True)
class Group:
    """Cases that share a baseline and are measured together: positions in the plan, and cases."""

    cases: tuple[tuple[int, PlannedCase], ...]


def groups(plan: Sequence[PlannedCase]) -> list[Group]:
    """The plan cut into groups, in its order. Depends on the plan alone, so shards agree."""
    open_groups: dict[object, list[tuple[int, PlannedCase]]] = {}
    found: list[list[tuple[int, PlannedCase]]] = []
    for position, case in enumerate(plan):
        same = (replace(case.key, variant=""), shapes_of(case.key), case.target)
        group = open_groups.get(same)
        if group is None or len(group) == MOST_TOGETHER:
            group = open_groups[same] = []
            found.append(group)
        group.append((position, case))
    return [Group(tuple(group)) for group in found]


def shard_of(all_groups: Sequence[Group], shard: tuple[int, int] | None) -> list[Group]:
    """Every n-th group from the i-th on: the same split on every machine, and none left out."""
    if shard is None:
        return list(all_groups)
    index, count = shard
    return [group for i, group in enumerate(all_groups) if i % count == index - 1]


def parse_shard(text: str) -> tuple[int, int]:
    """`3/12`."""
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"{text!r} is not a shard.", "Write 3/12 for the third of twelve.")
    return int(match[1]), int(match[2])


def command_of_case(case: PlannedCase, settings: Settings) -> tuple[str, ...]:
    """The command that measures this case again."""
    vs, how = (case.key.variant,), _how(case.key)
    words = public_words(command_of(BenchRequest((case.target,), vs, settings=settings, **how)))
    checkout = os.environ.get(TORCHBENCH_VARIABLE)
    if checkout and case.target.startswith(f"{TORCHBENCH_CHECKOUT}:"):
        return ("env", f"{TORCHBENCH_VARIABLE}={checkout}", *words)
    return words


def matrix(cases: Iterable[PlannedCase]) -> str:
    """`6 cases: 6 models × 1 variant`, for people."""
    cases = list(cases)
    models = {(case.key.suite, case.key.model) for case in cases}
    variants = {case.key.variant for case in cases}
    plural = "" if len(variants) == 1 else "s"
    return f"{len(cases)} cases: {len(models)} models, {len(variants)} variant{plural}"

"""The record of a run before anything is measured: what tells it from other runs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from importlib import metadata

import torchstone
from torchstone.lab.bench import new_id
from torchstone.lab.request import method_of
from torchstone.lab.run_plan import TORCHBENCH_CHECKOUT, TORCHBENCH_VARIABLE, Plan, RunRequest
from torchstone.machine.environment import machine_id
from torchstone.machine.hardware import cache_sizes, describe_cpu, memory_bytes
from torchstone.machine.repository import git_state
from torchstone.records import PlannedCase, Run, to_data
from torchstone.workloads.suites import known_suites
from torchstone.workloads.target import parse_target

Shard = tuple[int, int]
CHECKOUT = "pytorch/benchmark"
"""How the checkout is called among a run's packages."""
_LIBRARIES = {
    "hf": ("transformers",),
    "timm": ("timm", "torchvision"),
    "torchvision": ("torchvision",),
    "torchbench": ("timm", "torchvision", "transformers"),
    TORCHBENCH_CHECKOUT: ("timm", "torchvision", "transformers"),
}
"""What the models of the built-in suites are made from, by the prefix of their targets."""


def describe_run(
    request: RunRequest, plan: Plan, command: tuple[str, ...], shard: Shard | None
) -> Run:
    """The run's record, before anything is measured."""
    cpu = describe_cpu()
    settings = request.settings
    run = Run(
        id=new_id(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=command,
        plan=plan.cases,
        label=request.label,
        machine_id=machine_id(cpu, cache_sizes(), memory_bytes()),
        machine=cpu.get("model", ""),
        torch=version_of("torch"),
        git=git_state(os.getcwd()),
        packages=packages_of(plan.cases),
        tier=plan.tier,
        method=method_of(settings),
        notes=plan.notes,
        version=torchstone.__version__,
    )
    return run if shard is None else replace(run, id=_shared_id(run))


def _shared_id(run: Run) -> str:
    """The same for all shards of a label: by what is run, from which code, how, and where.

    Not by the reasons why some cases cannot run, which are those of one machine.
    """
    plan = [(to_data(case.key), case.target) for case in run.plan]
    code = [run.git.commit, run.git.dirty] if run.git is not None else []
    packages = sorted(run.packages.items())
    parts = (run.label, run.machine_id, run.torch, code, packages, plan, to_data(run.method))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def packages_of(cases: Iterable[PlannedCase]) -> dict[str, str]:
    """The libraries that the cases' models come from, each with its version; empty: not there.

    What a target of the user's own imports is the user's to know: it stands at the run's commit.
    """
    targets = map(parse_target, {case.target for case in cases})
    prefixes = {target.place for target in targets if target.kind == "suite"}
    found: dict[str, str] = {}
    for prefix in sorted(prefixes):
        names = _LIBRARIES.get(prefix)
        for name in names if names is not None else _plug_in(prefix):
            found[name] = version_of(name)
    if TORCHBENCH_CHECKOUT in prefixes:
        found[CHECKOUT] = _checkout_state()
    return found


def _plug_in(prefix: str) -> tuple[str, ...]:
    """The package that brings a suite which is none of ours."""
    point = known_suites().get(prefix)
    return (point.dist.name,) if point is not None and point.dist is not None else ()


def _checkout_state() -> str:
    """`COMMIT`, `COMMIT with changes`, or that it is in no repository; empty without a checkout."""
    folder = os.environ.get(TORCHBENCH_VARIABLE, "")
    if not folder:
        return ""
    state = git_state(folder)
    if state is None:
        return "in no repository"
    return state.commit + (" with changes" if state.dirty else "")


def version_of(package: str) -> str:
    """Its version; empty where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""

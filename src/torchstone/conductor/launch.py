"""How a worker is started: its interpreter, its environment, its caches."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchstone.conductor.case import CaseProgress, Events, Settings, Silent
from torchstone.conductor.template import SLOTS, Key, Template, Templates, make_payload, with_layout
from torchstone.conductor.worker import Spawn, WorkerProcess
from torchstone.machine.interpreters import resolve_interpreter
from torchstone.machine.memory import allocator_environment
from torchstone.measure.template import FORK_LAYOUT
from torchstone.records import ArmSpec, TorchstoneError
from torchstone.workloads import libraries_ahead

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass
class Launcher:
    """Starts workers for one case. `folder` is the case's own and goes when the case is over."""

    folder: Path
    templates: Templates | None = None
    _script: Path = field(init=False)
    _interpreters: dict[str, str] = field(default_factory=dict)
    salt: str = field(default_factory=lambda: os.urandom(16).hex())
    """For hashes of hidden variables: comparable between the arms of this case, and no further."""

    def __post_init__(self) -> None:
        self._script = make_payload(self.folder / "payload")
        (self.folder / "scratch").mkdir()

    def start(
        self,
        arm: ArmSpec,
        cache: str | None = None,
        layout: int | None = None,
        slot: int | None = 0,
    ) -> WorkerProcess:
        """A process for the arm. `cache` names its compile cache, by default its own.

        Processes with the same `layout` have their memory laid out alike and hash alike. It is
        forked from the template in `slot`, where there is one; None: always a new program.
        """
        scratch = self.folder / "scratch"
        template = None if slot is None else self._template(arm, slot)
        if template is not None:
            own = self.caches(arm, cache)
            if layout is not None:
                own[FORK_LAYOUT] = str(layout)
            with contextlib.suppress(TorchstoneError):  # the template is gone: do without
                return WorkerProcess(arm, template, own, scratch)
        env = self.environment(arm, cache)
        if layout is not None:
            env = with_layout(env, layout)
        return WorkerProcess(arm, Spawn([self.interpreter(arm), str(self._script)]), env, scratch)

    def import_ahead(self, arms: Sequence[ArmSpec], timeout_s: float, slots: int = SLOTS) -> None:
        """Have the arms' libraries imported in templates, side by side; nothing runs afterwards."""
        if self.templates is not None:
            self.templates.prepare([(self._key(arm), arm) for arm in arms], timeout_s, slots)

    def _template(self, arm: ArmSpec, slot: int) -> Template | None:
        if self.templates is None:
            return None
        return self.templates.of(self._key(arm), arm, slot)

    def _key(self, arm: ArmSpec) -> Key:
        variables = {**os.environ, **arm_environment(arm)}
        return self.interpreter(arm), tuple(sorted(variables.items())), libraries_ahead(arm)

    def interpreter(self, arm: ArmSpec) -> str:
        """The arm's interpreter, found once."""
        if arm.python is None:
            return sys.executable
        if arm.python not in self._interpreters:
            self._interpreters[arm.python] = resolve_interpreter(arm.python)
        return self._interpreters[arm.python]

    def environment(self, arm: ArmSpec, cache: str | None = None) -> dict[str, str]:
        """Ours, the allocator's, the threads', the caches', and last the arm's own."""
        return {**os.environ, **arm_environment(arm), **self.caches(arm, cache)}

    def caches(self, arm: ArmSpec, cache: str | None = None) -> dict[str, str]:
        """The variables that differ from worker to worker, where the arm does not set them."""
        folder = self.folder / _safe(cache or f"cache-{arm.name}")
        env = {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "NUMBA_CACHE_DIR": str(folder / "numba"),
            "TORCHSTONE_SCRATCH": str(self.folder / "scratch"),
        }
        return {**env, **{name: value for name, value in arm.env if name in env}}


@dataclass(frozen=True)
class CaseContext:
    """What every part of a case needs: how workers start, how to measure, whom to tell."""

    launcher: Launcher
    settings: Settings
    events: Events = field(default_factory=Silent)
    progress: CaseProgress = field(default_factory=CaseProgress)


def arm_environment(arm: ArmSpec) -> Mapping[str, str]:
    """The variables that the arm's own settings stand for."""
    env = dict(allocator_environment(arm.allocator))
    if arm.threads is not None:
        env.update(dict.fromkeys(_THREAD_VARIABLES, str(arm.threads)))
    return {**env, **dict(arm.env)}


def _safe(name: str) -> str:
    """A file name for any arm name; the hash keeps names apart that look the same when cleaned."""
    clean = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:40]
    return f"{clean}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"

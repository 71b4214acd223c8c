"""How a worker is started: its interpreter, its environment, its caches."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from torchstone.conductor.payload import make_payload
from torchstone.conductor.worker import WorkerProcess
from torchstone.machine.allocator import allocator_environment
from torchstone.machine.interpreters import resolve_interpreter
from torchstone.measure.bootstrap import VARIABLE as LAYOUT_VARIABLE
from torchstone.records import ArmSpec

LAYOUT_PAGES = 65_536
"""Reserved pages that move a layout: up to 256 MiB of addresses, and no memory."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass
class Launcher:
    """Starts workers for one case. `folder` is the case's own and goes when the case is over."""

    folder: Path
    _script: Path = field(init=False)
    _interpreters: dict[str, str] = field(default_factory=dict)
    _imported: dict[tuple[ArmSpec, str | None], WorkerProcess] = field(default_factory=dict)
    salt: str = field(default_factory=lambda: os.urandom(16).hex())
    """For hashes of hidden variables: comparable between the arms of this case, and no further."""

    def __post_init__(self) -> None:
        self._script = make_payload(self.folder / "payload")
        (self.folder / "scratch").mkdir()

    def start(
        self, arm: ArmSpec, cache: str | None = None, layout: int | None = None
    ) -> WorkerProcess:
        """A new process for the arm. `cache` names its compile cache, by default its own.

        Processes with the same `layout` have their memory laid out alike and hash alike.
        """
        if layout is None and (arm, cache) in self._imported:
            return self._imported.pop((arm, cache))
        return self._new(arm, cache, layout)

    def import_ahead(
        self, wanted: Sequence[tuple[ArmSpec, str | None]], timeout: Callable[[str], float]
    ) -> None:
        """Let the workers that `start` will be asked for import their libraries side by side.

        Importing takes most of such a worker's time, and when this returns nothing runs any more.
        """
        for arm, cache in wanted:
            worker = self._imported[arm, cache] = self._new(arm, cache)
            worker.tell({"do": "import", "arm": arm})
        for worker in self._imported.values():
            worker.finish_ahead(timeout)

    def dismiss(self) -> None:
        """End the workers that nobody asked for."""
        with ExitStack() as stack:  # all of them, also where one of them makes trouble
            while self._imported:
                stack.callback(self._imported.popitem()[1].kill)

    def _new(self, arm: ArmSpec, cache: str | None, layout: int | None = None) -> WorkerProcess:
        env = self.environment(arm, cache or f"cache-{arm.name}")
        if layout is not None:
            env[LAYOUT_VARIABLE] = str(1 + layout % LAYOUT_PAGES)
            env.setdefault("PYTHONHASHSEED", str(layout % 2**32))
        python = self.interpreter(arm)
        return WorkerProcess(arm, [python, str(self._script)], env, self.folder / "scratch")

    def interpreter(self, arm: ArmSpec) -> str:
        """The arm's interpreter, found once."""
        if arm.python is None:
            return sys.executable
        if arm.python not in self._interpreters:
            self._interpreters[arm.python] = resolve_interpreter(arm.python)
        return self._interpreters[arm.python]

    def environment(self, arm: ArmSpec, cache: str) -> dict[str, str]:
        """Ours, the allocator's, the threads', the caches', and last the arm's own."""
        cache_folder = self.folder / _safe(cache)
        env = {
            **os.environ,
            **arm_environment(arm),
            "TORCHINDUCTOR_CACHE_DIR": str(cache_folder / "inductor"),
            "NUMBA_CACHE_DIR": str(cache_folder / "numba"),
            "TORCHSTONE_SCRATCH": str(self.folder / "scratch"),
        }
        env.update(arm.env)
        return env


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

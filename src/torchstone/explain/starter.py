"""Has the passes run in a process of its own, so that this one never imports torch."""

from __future__ import annotations

import os
import time
from pathlib import Path

from torchstone.conductor import ArmEnded, Settings
from torchstone.conductor.launch import Launcher
from torchstone.conductor.worker import OutOfTime, Spawn, WorkerProcess, patience
from torchstone.explain.passes.report import Passes, Plan
from torchstone.machine.folders import own_folder
from torchstone.records import ArmSpec, TorchstoneError, from_data

SLACK_S = 120.0
"""Between two signs of life: passes of some seconds each, on a machine that may be busy."""
_SCRIPT = """from torchstone.explain.child import ExplainingWorker
from torchstone.measure.worker import main
main(ExplainingWorker)
"""
_INIT = '"""The part of this package that is sent to the worker."""\n'


def run_passes_of(arm: ArmSpec, plan: Plan, settings: Settings | None = None) -> Passes:
    """All passes of one arm, within `Settings.total_s` where that is set. A `TorchstoneError` says
    why there are none."""
    settings = settings or Settings()
    until = None if settings.total_s is None else time.monotonic() + settings.total_s
    with own_folder() as folder:
        launcher = Launcher(folder)
        script = _add_child(folder / "payload")
        env = launcher.environment(arm, "cache-explain")
        words = [launcher.interpreter(arm), str(script)]
        worker = WorkerProcess(arm, Spawn(words), env, folder / "scratch", until)
        try:
            command = {"do": "explain", "arm": arm, "plan": plan}
            reply = worker.ask(command, patience(settings, SLACK_S))
        except ArmEnded as ended:
            raise _as_error(arm, ended) from None
        except OutOfTime:
            raise TorchstoneError(
                f"{arm.target} was not explained: that takes more than {settings.total_s:.3g} s.",
                "Give more time.",
            ) from None
        finally:
            worker.kill()
    return from_data(Passes, reply)


def _add_child(payload: Path) -> Path:
    """The passes beside the packages that are sent."""
    home = Path(__file__).resolve().parent
    package = payload / "torchstone" / "explain"
    package.mkdir()
    (package / "__init__.py").write_text(_INIT)
    os.symlink(home / "child.py", package / "child.py")
    os.symlink(home / "passes", package / "passes")
    script = payload / "explain.py"
    script.write_text(_SCRIPT)
    return script


def _as_error(arm: ArmSpec, ended: ArmEnded) -> TorchstoneError:
    """The request was sound and the target did not do its work: exit code 1, as elsewhere."""
    detail = ended.detail
    last = detail.stderr[-1].strip() if detail.stderr else ""
    more = f" ({last})" if last and last not in detail.message else ""
    return TorchstoneError(
        f"{arm.target} under {arm.variant} cannot be explained: {ended.outcome.value} in "
        f"{detail.phase or 'start'}: {detail.message}{more}.",
        detail.remedy or "See whether `torchstone bench` runs it.",
    )

"""What is asked of an arm besides the answers of timed calls: answers to the inputs with which its
techniques are known to fail, the loss after some training steps, the user's own metric.

Run in processes of its own after the arm's solo pass: nothing is timed, and the arm's compile cache
is warm by then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchstone.conductor.case import ExtraChecks, Settings
from torchstone.conductor.check_outputs import evaluate, read_evidence
from torchstone.conductor.launch import CaseContext, Launcher
from torchstone.conductor.solo import REFERENCE_CACHE, declared_changes
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import ArmEnded, clean, patience
from torchstone.machine.folders import own_folder
from torchstone.measure.reference import DOES_NOT_APPLY, file_of
from torchstone.records import Agreement, ArmSpec, Outcome, UsageError
from torchstone.variants.techniques.base import CONVERGENCE_STEPS

SHORT = 300
LOSS_SEEDS = (1, 2, 3)
LOSS_STEPS, LEAST_STEPS = 24, 4
STEPS_RATIO = "steps ratio"
LOSS_SECONDS = 20.0
"""All steps of an arm together; fewer are taken where they would take longer."""
LOSS_SLACK = 0.02
"""By which the range of the baseline's losses is widened on either side, as a share of its mean."""
METRIC_LOSS = 0.01
"""Of the baseline's metric: nobody calls a model as good that loses more than a hundredth."""


def check_further(case: CaseContext, state: ArmState, base: ArmState) -> None:
    """Ask what the settings name for this arm, and refuse it for a wrong or a worse answer."""
    wanted = next((one for one in case.settings.extra_checks if one.arm == state.spec.name), None)
    if wanted is None or not state.alive:
        return
    names = tuple(dict.fromkeys((*wanted.inputs, *wanted.conditions)))
    if names:
        case.events.phase(f"{state.spec.name}: inputs with which it is known to fail")
        with case.progress.phase("adversarial inputs"):
            found = _compare(case, state, base, names)
        state.agreement = replace(state.agreement or Agreement("none"), adversarial=found)
        for name in wanted.inputs:
            said = found[name]
            if said and not said.startswith(DOES_NOT_APPLY):
                state.wrong(Outcome.WRONG_ANSWER, f"with {name}: {said}", "adversarial inputs")
                return
    with case.progress.phase("quality"):
        said = _quality(case, state, base, wanted)
    if said:
        state.wrong(Outcome.WRONG_ANSWER, clean(said, state.spec)[:SHORT], "quality")


def _quality(case: CaseContext, state: ArmState, base: ArmState, wanted: ExtraChecks) -> str:
    """What is worse than with the baseline, in words; empty where nothing is."""
    found: dict[str, float] = {}
    said = ""
    if (wanted.losses or wanted.convergence) and state.spec.mode == "training":
        said = _losses(case, state, base, found, wanted.convergence)
    if wanted.metric and not said:
        said = _metric(case, state, base, wanted.metric, found)
    state.agreement = replace(state.agreement or Agreement("none"), quality=found)
    return said


def _losses(
    case: CaseContext, state: ArmState, base: ArmState, found: dict[str, float], otherwise: bool
) -> str:
    case.events.phase(f"{state.spec.name}: loss over {len(LOSS_SEEDS)} seeds")
    slowest = max(one.solo.step_ns for one in (state, base) if one.solo is not None) / 1e9
    fitting = int(LOSS_SECONDS / max(slowest, 1e-9) / len(LOSS_SEEDS))
    steps = min(CONVERGENCE_STEPS if otherwise else LOSS_STEPS, max(LEAST_STEPS, fitting))
    command = {"do": "losses", "seeds": LOSS_SEEDS, "steps": steps}
    try:
        curves = _asked_once(case, base.spec, command, f"losses-{steps}")
        own = _asked(case, state.spec, command)
    except (ArmEnded, UsageError) as ended:
        return f"its loss over {steps} steps is not known: {ended}"
    theirs, mine = ([_at_the_end(curve) for curve in some] for some in (curves, own))
    mean, base_mean = (sum(some) / len(some) for some in (mine, theirs))
    found.update({"loss": mean, "baseline loss": base_mean})
    slack = LOSS_SLACK * abs(base_mean)
    low = -math.inf if otherwise else min(theirs) - slack
    if low <= mean <= max(theirs) + slack:
        return _steps_needed(curves, own, found) if otherwise else ""
    return (
        f"after {steps} steps over {len(LOSS_SEEDS)} seeds its loss is {mean:.4g}; the baseline's "
        f"lie between {min(theirs):.4g} and {max(theirs):.4g}"
    )


def _window(curve: Sequence[float]) -> int:
    return max(1, len(curve) // 4)


def _at_the_end(curve: Sequence[float]) -> float:
    last = curve[-_window(curve) :]
    return sum(last) / len(last)


def _reached(curve: Sequence[float], loss: float) -> int | None:
    """The first step at which the mean over a quarter of the curve is as low."""
    width = _window(curve)
    ends = range(width, len(curve) + 1)
    return next((end for end in ends if sum(curve[end - width : end]) / width <= loss), None)


def _steps_needed(
    theirs: Sequence[Sequence[float]], mine: Sequence[Sequence[float]], found: dict[str, float]
) -> str:
    """How many steps until the baseline's last loss is reached, as a share of the baseline's own:
    of the worst seed."""
    ratios = []
    for base, own in zip(theirs, mine, strict=True):
        aim = _at_the_end(base)
        needed = _reached(own, aim)
        if needed is None:
            return f"it does not reach the baseline's loss of {aim:.4g} in {len(own)} steps"
        ratios.append(needed / (_reached(base, aim) or len(base)))
    found[STEPS_RATIO] = max(ratios)
    return ""


def _metric(
    case: CaseContext, state: ArmState, base: ArmState, name: str, found: dict[str, float]
) -> str:
    case.events.phase(f"{state.spec.name}: {name}")
    command = {"do": "metric", "name": name}
    try:
        theirs = float(_asked_once(case, base.spec, command, "metric"))
        mine = float(_asked(case, state.spec, command))
    except (ArmEnded, UsageError) as ended:
        return f"its metric is not known: {ended}"
    found.update({"metric": mine, "baseline metric": theirs})
    if mine >= theirs - METRIC_LOSS * abs(theirs):
        return ""
    return f"its metric is {mine:.4g}, the baseline's {theirs:.4g}"


def check_metric(spec: ArmSpec, settings: Settings, name: str) -> None:
    """Refuse a function that fails with the baseline itself: it could evaluate nothing."""
    with own_folder() as folder:
        case = CaseContext(Launcher(folder), settings)
        try:
            _asked(case, spec, {"do": "metric", "name": name})
        except (ArmEnded, UsageError) as ended:
            said = clean(str(ended), spec)
            raise UsageError(
                f"{name} fails with the target as it is: {said}",
                "It is called with the model, and returns a number; larger is better.",
            ) from None


def _asked_once(case: CaseContext, spec: ArmSpec, command: dict[str, Any], name: str) -> Any:
    """What the baseline says, which is the same for all arms of a case."""
    path = case.launcher.folder / f"baseline-{name}.json"
    if not path.exists():
        path.write_text(json.dumps(_asked(case, spec, command)))
    return json.loads(path.read_text())


def _asked(case: CaseContext, spec: ArmSpec, command: dict[str, Any]) -> Any:
    worker = case.launcher.start(spec)
    waiting = patience(case.settings, slack_s=case.settings.build_timeout_s)
    try:
        return worker.ask({**command, "arm": spec}, waiting)
    finally:
        worker.kill()


def _compare(
    case: CaseContext, state: ArmState, base: ArmState, names: tuple[str, ...]
) -> dict[str, str]:
    """By input what is wrong with the arm's answer; empty where nothing is."""
    folder = case.launcher.folder / "adversarial"
    folder.mkdir(exist_ok=True)
    truth = _baseline(case, base.spec, names, folder)
    own = folder / f"arm-{len(list(folder.iterdir()))}"
    own.mkdir()
    answers = _ask(case, state.spec, "arm", names, own)
    return {
        name: clean(truth[name] or answers[name] or _mismatch(name, state, base, own), state.spec)[
            :SHORT
        ]
        for name in names
    }


def _baseline(
    case: CaseContext, spec: ArmSpec, names: tuple[str, ...], folder: Path
) -> Mapping[str, str]:
    """What the baseline could not do, which nobody is blamed for; asked once for each input."""
    known = folder / "said.json"
    said: dict[str, str] = json.loads(known.read_text()) if known.exists() else {}
    missing = tuple(name for name in names if name not in said)
    if missing:
        for name, text in _ask(case, spec, "baseline", missing, folder).items():
            text = text.removeprefix(f"{DOES_NOT_APPLY}: ")
            said[name] = f"{DOES_NOT_APPLY}: the baseline: {text}" if text else ""
        known.write_text(json.dumps(said))
    return said


def _ask(
    case: CaseContext, spec: ArmSpec, who: str, names: tuple[str, ...], folder: Path
) -> Mapping[str, str]:
    settings = case.settings
    worker = case.launcher.start(spec, cache=REFERENCE_CACHE if who == "baseline" else None)
    command = {
        "do": "adversarial",
        "arm": spec,
        "who": who,
        "cases": names,
        "folder": str(folder),
        "seed": settings.seed,
    }
    try:
        found: Mapping[str, str] = worker.ask(
            command, patience(settings, slack_s=settings.build_timeout_s)
        )
    except (ArmEnded, UsageError) as ended:
        return dict.fromkeys(names, str(ended))
    finally:
        worker.kill()
    return found


def _mismatch(name: str, state: ArmState, base: ArmState, own: Path) -> str:
    """How the arm's answer differs from the baseline's; empty where it does not."""
    found = read_evidence(own / file_of("arm", name))
    eager = read_evidence(own.parent / file_of("eager", name))
    exact = own.parent / file_of("fp64", name)
    fp64 = read_evidence(exact) if exact.exists() else None
    return evaluate(state.spec, found, eager, fp64, declared_changes(state, base)).mismatch

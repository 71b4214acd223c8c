"""`torchstone tune`: techniques put to the test one by one, combined, confirmed from a recipe."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol

import torchstone
from torchstone.conductor import (
    Events,
    ExtraChecks,
    Settings,
    Templates,
    check_metric,
    open_templates,
)
from torchstone.conductor.run import OUT_OF_TIME
from torchstone.lab.bench import measure, new_id
from torchstone.lab.explain import ExplainRequest, explain_target
from torchstone.lab.output_files import write_file
from torchstone.lab.recording import Recorder
from torchstone.lab.request import (
    BenchRequest,
    check_choices,
    check_settings,
    env_words,
    make_arms,
    option_words,
    repeated,
)
from torchstone.lab.secrets import public_arm, public_words, restore_env
from torchstone.records import (
    GOALS,
    TIERS,
    ArmSpec,
    Decision,
    Experiment,
    Ledger,
    Result,
    Stage,
    TorchstoneError,
    Tuning,
    UsageError,
)
from torchstone.store import open_store
from torchstone.store.limits import now
from torchstone.tuning import decide, plan
from torchstone.tuning.recipe import recipe_text
from torchstone.variants.registry import PREFIX, read_constants
from torchstone.variants.techniques import TECHNIQUES
from torchstone.workloads import check_target

LEDGER_BUDGET_S = 3.0
"""Steps of the ledger; starting and importing come on top."""
CONFIRM_TESTS = 2
"""Of the recipe: where the first cannot tell, a longer one follows; each has half the level."""
REPLICATES = {Stage.SCREEN: 3, Stage.SELECT: 6, Stage.CONFIRM: 6}
"""Processes of each arm at most; a case ends earlier where it is decided. Screening adopts nothing,
so that the fewest that have an interval worth the name are enough."""
LEAST_BUILD_S, HANG_SHARE = 120.0, 0.25
NOT_YET = "not run yet"
UNREACHED = "not tried: the budget was spent"
SELECT_SEED, CONFIRM_SEED = 101, 202
"""Added to the seed: the selection and the confirmation have data of their own."""


@dataclass(frozen=True)
class TuneRequest:
    """`torchstone tune`, as asked."""

    bench: BenchRequest
    goal: str = "speed"
    allow: str = "tolerance"
    budget_s: float = 600.0
    metric: str = ""
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    resume: str = ""
    recipe: str = ""
    alpha: float = 0.05


class TuneEvents(Events, Protocol):
    """Who wants to know how a tuning gets on."""

    def tuning_started(self, tuning: Tuning, candidates: int) -> None:
        """The plan stands."""

    def experiment_started(self, stage: str, names: Sequence[str], left: float) -> None:
        """A case begins."""

    def experiment_finished(self, experiment: Experiment) -> None:
        """An experiment has ended."""


@dataclass
class _Session:
    """A tuning on its way."""

    tuning: Tuning
    base: ArmSpec
    settings: Settings
    recorder: Recorder
    events: TuneEvents | None
    templates: Templates
    clock: plan.Clock
    recipe_path: str
    experiments: list[Experiment] = field(default_factory=list)
    adopted: tuple[str, ...] = ()
    out_of_time: bool = False

    def keep(self, experiment: Experiment) -> None:
        """Add an experiment, and store it at once."""
        self.experiments.append(experiment)
        if self.recorder.saves:
            name = self.tuning.id
            with self.recorder.collect_errors("An experiment was not kept"):
                self.recorder.write(lambda store: store.add_experiment(name, experiment))
        if self.events is not None and experiment.decision.measured:
            self.events.experiment_finished(experiment)

    def done(self, stage: Stage) -> list[Experiment]:
        """What is known of a stage, the newest of each technique."""
        found = {one.technique: one for one in self.experiments if one.stage is stage}
        return list(found.values())

    def allow(self, stage: Stage, cases: int = 1, arms: int = 1) -> plan.Allowance | None:
        """What the next case may take; None where it cannot be made any more."""
        allowed = plan.allow(self.clock, stage, cases, arms, self.experiments)
        self.out_of_time |= allowed is None
        return allowed

    def rule(self, alpha: float) -> decide.Rule:
        """By what an experiment at this level is decided."""
        return decide.Rule(self.tuning.goal, self.tuning.allow, self.tuning.margin, alpha)

    def now(self) -> Tuning:
        """The tuning as it is."""
        return replace(
            self.tuning,
            experiments=tuple(self.experiments),
            adopted=self.adopted,
            elapsed_s=self.tuning.elapsed_s + self.clock.spent_s,
        )


def tune(request: TuneRequest, recorder: Recorder, events: TuneEvents | None = None) -> Tuning:
    """Screen, select, confirm, all within the budget. Ctrl-C ends it, and what is known stays
    known."""
    clock = plan.Clock(request.budget_s, time.monotonic())
    check(request)
    if recorder.saves:
        recorder.check()
    known = _resumed(request, recorder) if request.resume else None
    base = restore_env(known.arm) if known else _baseline(request)
    tuning = known or _begin(request, base)
    if tuning.metric:
        check_metric(base, request.bench.settings, tuning.metric)
    with ExitStack() as stack:
        session = _Session(
            replace(tuning, state="running"),
            base,
            replace(request.bench.settings, seed=tuning.seed, margin=tuning.margin),
            recorder,
            events,
            stack.enter_context(open_templates(compile_once=True)),
            clock,
            request.recipe or tuning.recipe_path or f"recipe_{tuning.id}.py",
            list(tuning.experiments),
        )
        state = "complete"
        try:
            if known is None:
                _look(session, request)
            _screen(session)
            _select(session)
            _confirm(session)
        except KeyboardInterrupt:
            state = "interrupted"
        if state == "complete" and session.out_of_time:
            state = "out of time"
        return _end(session, state)


def check(request: TuneRequest) -> None:
    """Refuse what cannot work, before anything is started."""
    check_settings(request.bench.settings)
    check_choices("goal", GOALS, request.goal)
    check_choices("tier of correctness", TIERS, request.allow)
    plan.check_names((*request.only, *request.without))
    if len(request.bench.targets) != 1 and not request.resume:
        raise UsageError("One target is tuned at a time.", "Name one: path.py:make.")
    if not request.budget_s > 0:
        raise UsageError("The budget must be more than zero.")
    if request.recipe and "+" in request.recipe:
        raise UsageError("The name of a recipe file has no +.", "Choose another one.")
    if request.recipe and os.path.exists(request.recipe):
        raise UsageError(f"{request.recipe} is there already.", "Name another file, or remove it.")
    if request.metric:
        check_target(request.metric)
        if request.bench.mode == "training":
            raise UsageError("--metric evaluates inference.", "Remove --metric or --mode training.")


def _baseline(request: TuneRequest) -> ArmSpec:
    """The target as its user runs it: with the system's own allocator, unless another is named."""
    asked = replace(request.bench, allocator=request.bench.allocator or "default", vs=(), arms=())
    return replace(make_arms(asked)[0], name="baseline")


def _begin(request: TuneRequest, base: ArmSpec) -> Tuning:
    settings = request.bench.settings
    return Tuning(
        id=new_id(),
        created=now(),
        arm=public_arm(base),
        goal=request.goal,
        allow=request.allow,
        budget_s=request.budget_s,
        alpha=request.alpha,
        margin=settings.margin,
        seed=settings.seed,
        metric=request.metric,
        only=request.only,
        without=request.without,
        command=public_words(command_of(request)),
        version=torchstone.__version__,
    )


def _resumed(request: TuneRequest, recorder: Recorder) -> Tuning:
    with open_store(recorder.url, create=False, read_only=True) as store:
        return store.load_tuning(request.resume)


def command_of(request: TuneRequest) -> tuple[str, ...]:
    """The command line that asks for the same again."""
    plain = TuneRequest(BenchRequest(()))
    names = ("mode", "precision", "device", "threads", "python", "allocator")
    return (
        *("torchstone", "tune", *request.bench.targets),
        *option_words(request.bench, BenchRequest(()), *names),
        *option_words(request, plain, "goal", "allow", "metric"),
        *repeated("--only", request.only),
        *repeated("--without", request.without),
        *env_words(request.bench.env),
        *("--budget", f"{request.budget_s:g}s"),
    )


def _look(session: _Session, request: TuneRequest) -> None:
    """The ledger, for what each technique could touch at most; then the plan."""
    ledger = _ledger(session, request)
    shares = (
        {name: plan.share_of(TECHNIQUES[name], ledger) for name in TECHNIQUES if _loads(name)}
        if ledger
        else {}
    )
    tuning = session.tuning
    environment = ledger.environment if ledger else None
    tuning = replace(
        tuning,
        hypotheses=shares,
        ledger_id=ledger.id if ledger else "",
        environment=environment,
        findings=_by_hand(ledger) if ledger else (),
    )
    if ledger is not None and session.base.threads is None:
        known = ledger.facts.get("threads", "")
        session_threads = int(known) if known.isdigit() else None
    else:
        session_threads = session.base.threads
    version = str(environment.torch.get("version", "")) if environment else ""
    wanted = plan.Wanted(tuning.goal, tuning.allow, tuning.only, tuning.without, tuning.metric)
    seen = replace(session.base, threads=session_threads)
    candidates, unable = plan.choose(seen, wanted, version, shares)
    rules = decide.rules(tuning.goal, tuning.allow, tuning.alpha, tuning.margin, len(candidates))
    session.tuning = replace(tuning, rules=rules)
    if session.recorder.saves:
        with session.recorder.collect_errors("The tuning was not kept"):
            session.recorder.write(lambda store: store.begin_tuning(session.tuning))
    if session.events is not None:
        session.events.tuning_started(session.tuning, len(candidates))
    for one in unable:
        session.keep(replace(one, share=shares.get(one.technique)))
    for name in candidates:
        session.keep(
            Experiment(
                Stage.SCREEN,
                name,
                Decision.NOT_RUN,
                NOT_YET,
                tier=TECHNIQUES[name].tier,
                share=shares.get(name),
            )
        )


def _loads(name: str) -> bool:
    try:
        return bool(TECHNIQUES[name].name)
    except Exception:  # a package of somebody else's; `plan.choose` says what is wrong with it
        return False


def _ledger(session: _Session, request: TuneRequest) -> Ledger | None:
    """Without one every share is unknown; that costs the order of the experiments, no more."""
    share = plan.LEDGER_SHARE * session.clock.budget_s
    settings = replace(request.bench.settings, total_s=share)
    asked = replace(request.bench, allocator=session.base.allocator, settings=settings)
    steps_s = min(LEDGER_BUDGET_S, share / 4)
    try:
        return explain_target(
            ExplainRequest(asked, budget_s=steps_s), session.recorder, session.events
        )
    except (TorchstoneError, OSError) as error:
        if isinstance(error, UsageError):
            raise
        said = f"No ledger, so no share at stake is known: {error}"
        session.tuning = replace(session.tuning, notes=(*session.tuning.notes, said))
        return None


def _by_hand(ledger: Ledger) -> tuple[str, ...]:
    """What only a change of the code can do."""
    return tuple(
        f"{one.title}: {one.evidence}. Remedy by hand: {one.advice}."
        for one in ledger.findings
        if not one.remedy.applicable
    )


def _todo(session: _Session) -> list[str]:
    return [
        one.technique
        for one in session.done(Stage.SCREEN)
        if one.decision is Decision.NOT_RUN and one.technique not in session.tuning.without
    ]


def _screen(session: _Session) -> None:
    """Every technique that applies, alone against the baseline."""
    todo, shares = _todo(session), session.tuning.hypotheses
    while todo:
        todo = plan.order(session.base, todo, shares, session.done(Stage.SCREEN))
        some = plan.batches(session.base, todo)
        names = some[0]
        todo = [name for name in todo if name not in names]
        allowed = session.allow(Stage.SCREEN, len(some), len(names))
        if allowed is None:
            return
        arms = [plan.arm_of(session.base, [name]) for name in names]
        result = _measure(session, Stage.SCREEN, session.base, arms, names, allowed, 0, 0.05)
        for name, arm in zip(names, arms, strict=True):
            known = session.tuning.hypotheses.get(name)
            made = Experiment(
                Stage.SCREEN,
                name,
                Decision.NOT_RUN,
                arm=public_arm(arm),
                tier=TECHNIQUES[name].tier,
                share=known,
                seconds=result.method.elapsed_s / len(names),
            )
            session.keep(decide.decide(made, result, arm.name, session.rule(result.method.alpha)))


def _select(session: _Session) -> None:
    """Forward selection: one more technique on top of what is adopted, each tested by itself."""
    screened = session.done(Stage.SCREEN)
    tests = decide.queue(screened, session.tuning.goal)
    done = {one.technique: one for one in session.done(Stage.SELECT)}
    session.adopted = tuple(name for name in done if done[name].decision is Decision.ADOPTED)
    alpha = session.tuning.alpha / max(1, len(tests))
    for number, name in enumerate(tests):
        if name in done and done[name].decision is not Decision.NOT_RUN:
            continue
        made = Experiment(
            Stage.SELECT, name, Decision.NOT_RUN, on=session.adopted, tier=TECHNIQUES[name].tier
        )
        reason = _not_on_top(session, name)
        if reason:
            session.keep(replace(made, decision=Decision.REJECTED, reason=reason))
            continue
        allowed = session.allow(Stage.SELECT, len(tests) - number)
        if allowed is None:
            return
        names = plan.with_technique(session.adopted, name)
        before = plan.arm_of(session.base, session.adopted)
        arm = plan.arm_of(session.base, names)
        result = _measure(session, Stage.SELECT, before, [arm], names, allowed, SELECT_SEED, alpha)
        made = replace(made, arm=public_arm(arm), seconds=result.method.elapsed_s)
        alone = next((one for one in screened if one.technique == name), None)
        earlier = None if session.adopted else alone
        made = decide.decide(made, result, arm.name, session.rule(result.method.alpha), earlier)
        if made.decision is Decision.ADOPTED:
            session.adopted = names
        session.keep(made)


def _not_on_top(session: _Session, name: str) -> str:
    """Why a technique is not tested on top of what is adopted; empty where it is."""
    group = TECHNIQUES[name].group
    other = next((one for one in session.adopted if group and TECHNIQUES[one].group == group), "")
    if other:
        return f"{other} is adopted in its place, and gained more alone"
    return TECHNIQUES[name].unsupported(plan.arm_of(session.base, session.adopted))


def _measure(
    session: _Session,
    stage: Stage,
    base: ArmSpec,
    arms: Sequence[ArmSpec],
    names: Sequence[str],
    allowed: plan.Allowance,
    seed: int,
    alpha: float,
) -> Result:
    """One case; Ctrl-C in it ends the tuning, because half a case decides nothing."""
    if session.events is not None:
        named = [arm.name for arm in arms]
        session.events.experiment_started(stage.value, named, session.clock.left_s)
    changed = session.settings.seed + seed
    some = [replace(arm, seed=changed) for arm in (base, *arms)]
    settings = replace(
        session.settings,
        budget_s=allowed.turns_s,
        total_s=allowed.total_s,
        build_timeout_s=min(session.settings.build_timeout_s, _patience(session)),
        seed=changed,
        alpha=alpha,
        screening=stage is Stage.SCREEN,
        hopeless=decide.HOPELESS_RATIO * plan.work_of(names) if stage is Stage.SCREEN else None,
        until="adopted",
        replicates=REPLICATES[stage],
        extra_checks=_checks(session, stage, arms, names),
    )
    result = measure(
        some,
        settings,
        session.recorder,
        session.events,
        session.tuning.command,
        "tune",
        f"tune {session.tuning.id} {stage.value}",
        session.templates,
    )
    if result.method.stopped_by == "interrupt":
        raise KeyboardInterrupt
    if result.method.stopped_by == OUT_OF_TIME:
        session.out_of_time = True
    return result


def _patience(session: _Session) -> float:
    """For building and first calls: what hangs takes a part of what is left, and the least that is
    fair."""
    return max(LEAST_BUILD_S, HANG_SHARE * session.clock.left_s)


def _checks(
    session: _Session, stage: Stage, arms: Sequence[ArmSpec], names: Sequence[str]
) -> tuple[ExtraChecks, ...]:
    """Of each arm; in screening each has a technique of its own."""
    metric = session.tuning.metric
    if stage is Stage.SCREEN:
        pairs = zip(arms, names, strict=True)
        return tuple(plan.checks_of(arm.name, [name], metric) for arm, name in pairs)
    return tuple(plan.checks_of(arm.name, names, metric) for arm in arms)


def _confirm(session: _Session) -> None:
    """The recipe file against the baseline, in new processes with inputs of their own."""
    if not session.adopted:
        return
    known = session.now().confirmation
    if known is not None and known.on == session.adopted and known.decision.measured:
        return
    path = os.path.abspath(session.recipe_path)
    write_file(path, recipe_text(session.now(), session.adopted))
    arm = recipe_arm(session.base, path)
    session.templates.compile_alike(arm, plan.arm_of(session.base, session.adopted))
    for number in range(CONFIRM_TESTS):
        made = _confirmation(session, arm, number)
        session.keep(made)
        if made.decision is not Decision.CANNOT_TELL or session.clock.left_s < made.seconds:
            break
    text = recipe_text(session.now(), session.adopted)
    write_file(path, text)
    session.tuning = replace(session.tuning, recipe=text, recipe_path=path)


def _confirmation(session: _Session, arm: ArmSpec, number: int) -> Experiment:
    """One test of the recipe; a second one has twice the time in turns."""
    made = Experiment(
        Stage.CONFIRM,
        "recipe",
        Decision.NOT_RUN,
        UNREACHED,
        on=session.adopted,
        arm=public_arm(arm),
        tier=max((TECHNIQUES[one].tier for one in session.adopted), key=TIERS.index),
    )
    allowed = session.allow(Stage.CONFIRM)
    if allowed is None:
        return made
    allowed = replace(allowed, turns_s=allowed.turns_s * (1 + number))
    alpha = session.tuning.alpha / CONFIRM_TESTS
    names, seed = session.adopted, CONFIRM_SEED + number
    result = _measure(session, Stage.CONFIRM, session.base, [arm], names, allowed, seed, alpha)
    made = replace(made, reason="", seconds=result.method.elapsed_s)
    tests = [one for one in session.done(Stage.SELECT) if one.decision is Decision.ADOPTED]
    earlier = tests[0] if len(tests) == 1 else None
    return decide.decide(made, result, arm.name, session.rule(result.method.alpha), earlier)


def recipe_arm(base: ArmSpec, path: str) -> ArmSpec:
    """The baseline with the recipe of a file, and nothing else: its variables are read there."""
    env = {**dict(base.env), **read_constants(path).get("ENVIRONMENT", {})}
    return replace(base, name="recipe", variant=f"{PREFIX}{path}", env=tuple(sorted(env.items())))


def _end(session: _Session, state: str) -> Tuning:
    for one in session.done(Stage.SCREEN) if state == "out of time" else ():
        if one.decision is Decision.NOT_RUN and one.reason == NOT_YET:
            session.keep(replace(one, reason=UNREACHED))
    ended = replace(session.now(), state=state)
    if session.recorder.saves and ended.rules:
        with session.recorder.collect_errors("The end of the tuning was not kept"):
            session.recorder.write(lambda store: store.end_tuning(ended))
            session.recorder.ids_kept.append(ended.id)
    return ended

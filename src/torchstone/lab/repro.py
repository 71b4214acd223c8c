"""`torchstone repro`: measure a stored result again, and set the new beside the old."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchstone import stats, validate
from torchstone.conductor import Events, Settings
from torchstone.lab.bench import aa_floor, measure
from torchstone.lab.recording import Recorder
from torchstone.lab.request import check_arm, settings_from
from torchstone.lab.secrets import is_ours, refuse_incomplete, restore_env
from torchstone.records import (
    CASE_KIND,
    CaseKey,
    CaseMetrics,
    Check,
    Comparison,
    Environment,
    Level,
    Measurement,
    Outcome,
    Result,
    UsageError,
    Verdict,
)

# What is not as it was when a stored result is measured again: code, libraries, machine, model.


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


STORED = " (stored)"
DRIFT = 0.04
"""What the time of unchanged code may move by between two sessions. Of 39 sessions of one 5 ms step
within 90 minutes (`benchmarks/results/aa-live.jsonl`, the baseline's floor) no two differed by more
than 3.8 %, one pair in twenty by more than 2.6 %, and one in six would have been called different.
"""
BETWEEN_SESSIONS = (
    "Times of two sessions: the machine's drift between them is in no interval, so a difference "
    f"up to {DRIFT:.0%} is not called one."
)


@dataclass(frozen=True)
class Reproduction:
    """The new result, and every arm against its stored self.

    `against_stored` has each arm's time; `speedups`, of every arm but the baseline, its time in
    units of its session's baseline, in which the machine's drift cancels.
    """

    stored: Result
    new: Result
    against_stored: tuple[Comparison, ...]
    speedups: tuple[Comparison, ...] = ()
    changes: tuple[Change, ...] = ()
    other_models: Mapping[str, str] = field(default_factory=dict)
    """Arms that are not what they were, and why: their times are not compared."""

    @property
    def combined(self) -> Result:
        """Old and new arms in one result, for the same JSON shape as everywhere."""
        arms = (*(_renamed(arm) for arm in self.stored.arms), *self.new.arms)
        both = replace(self.new, arms=arms)
        comparisons = (*self.new.comparisons, *self.speedups, *self.against_stored)
        checks = (*validate.evaluate(both), *as_checks(self.changes, self.other_models))
        return replace(both, comparisons=comparisons, checks=checks)


def _need_trust(stored: Result, trust: bool) -> None:
    elsewhere = where_from(stored)
    if elsewhere and not trust:
        raise UsageError(
            f"{stored.id} {elsewhere} and names code that would be run.",
            "Look at it with `torchstone show`, then add --trust.",
        )


def _refuse_work_trees(stored: Result) -> None:
    """Arms of `check` and `bisect` ran in work trees, which are gone; the command makes them."""
    if any(arm.arm.folder for arm in stored.arms):
        raise UsageError(
            f"{stored.id} was measured in work trees of a git repository, which are gone.",
            f"Run it there again: {shlex.join(stored.command)}",
        )


def repro(
    stored: Result,
    *,
    trust: bool,
    recorder: Recorder | None,
    events: Events | None = None,
    budget_s: float | None = None,
) -> Reproduction:
    """Run the stored arms again. A record from elsewhere names code to run, so it needs `trust`."""
    if stored.method.session:
        raise UsageError(
            f"{stored.id} was measured from objects of a session, which is over.",
            "Measure them again where they live, or put them into a file: path.py:make.",
        )
    _refuse_work_trees(stored)
    _need_trust(stored, trust)
    if stored.sweep:
        raise UsageError(
            f"{stored.id} is a sweep of {len(stored.sweep)} cases, which repro does not repeat.",
            f"Measure it again: {shlex.join(stored.command)}",
        )
    for measured in stored.arms:
        refuse_incomplete(measured)
    arms = [restore_env(measured.arm) for measured in stored.arms]
    for arm in arms:
        check_arm(arm)
    settings = settings_of(stored)
    if budget_s is not None:
        settings = replace(settings, budget_s=budget_s)
    command = ("torchstone", "repro", stored.id)
    # One case of a run is a result of its own when it is measured again: lists leave cases out.
    kind = "bench" if stored.kind == CASE_KIND else stored.kind
    new = measure(arms, settings, recorder, events, command, kind, f"repro of {stored.id}")
    done = Reproduction(
        stored, new, (), changes=changes(stored, new), other_models=other_models(stored, new)
    )
    if stored.pruned:  # there is nothing left to set the new samples against
        return done
    floor = aa_floor(recorder, new.arms[0])
    return replace(
        done, against_stored=against(stored, new, floor), speedups=speedups(stored, new, floor)
    )


def where_from(stored: Result) -> str:
    """Words for a result that this installation did not make; empty for our own.

    A database from elsewhere calls its rows its own, and machines of one type have one
    `machine_id`, so neither speaks for a result: only the signature does.
    """
    if stored.origin != "here":
        return f"was imported from {stored.origin}"
    if not stored.signature:
        return "is not signed by the installation that made it (as those of older versions)"
    return "" if is_ours(stored) else "was not made by this installation, or was changed since"


def settings_of(stored: Result) -> Settings:
    """The settings that a stored result was made with."""
    method = stored.method
    # A statement's setup may be good for so many executions only.
    loops = {arm.loops for arm in stored.arms if arm.arm.statement is not None and arm.turns}
    settings = replace(settings_from(method), loops=loops.pop() if len(loops) == 1 else None)
    # As `bench` does, or no rule could hold the new times against the work that they stand for.
    return replace(settings, count_flops=all(arm.arm.statement is None for arm in stored.arms))


def against(stored: Result, new: Result, floor: float) -> tuple[Comparison, ...]:
    """Each arm's time against its stored self, floor by floor, over all processes of both.

    No figure where one of the two fails a check, or is not the model that it was.
    """
    alpha = 0.05 / max(1, len(stored.arms))
    made = tuple(
        _with_drift(
            stats.compare_sessions(
                _renamed(old), again, margin=stored.method.margin, alpha=alpha, aa_floor=floor
            )
        )
        for old, again in zip(stored.arms, new.arms, strict=True)
    )
    others = other_models(stored, new)
    evaluated = validate.withhold(made, (*_checks_of(stored), *new.checks))
    return tuple(_without_figures(one, others.get(one.new, "")) for one in evaluated)


def _checks_of(stored: Result) -> tuple[Check, ...]:
    """The stored result's, under the names that its arms have beside the new ones."""
    return tuple(
        replace(check, arms=tuple(name + STORED for name in check.arms)) for check in stored.checks
    )


def _without_figures(found: Comparison, why: str) -> Comparison:
    """The same where there is nothing against it, else what `validate.withhold` would leave."""
    if not why:
        return found
    bare = Comparison(found.base, found.new, Verdict.CANNOT_TELL, found.decided_by)
    bare = replace(bare, margin=found.margin, aa_floor=found.aa_floor)
    return replace(bare, reason=f"Withheld: {why}.")


def _with_drift(found: Comparison) -> Comparison:
    """Nothing is claimed that may be the machine's, and what the interval lacks is said."""
    if found.time_ratio is None:
        return found
    least = found.smallest_detectable
    return replace(
        found,
        verdict=_despite_drift(found, found.time_ratio),
        threshold=max(found.threshold or 0.0, DRIFT),
        smallest_detectable=None if least is None else max(least, DRIFT),
        reason=f"{found.reason} {BETWEEN_SESSIONS}".strip(),
    )


def _despite_drift(found: Comparison, ratio: float) -> Verdict:
    """The verdict, if it stands wherever the machine drifted to; `same` is of the times as seen."""
    if found.verdict.different:
        beyond = abs(math.log(ratio)) > math.log1p(DRIFT)
        return found.verdict if beyond else Verdict.CANNOT_TELL
    if found.verdict is Verdict.SAME:
        return found.verdict
    low, high = stats.logs_of(found.interval)
    drift = math.log1p(DRIFT)
    wider = stats.by_interval((low - drift, high + drift), found.margin)
    return wider if wider is found.verdict else Verdict.CANNOT_TELL


def speedups(stored: Result, new: Result, floor: float) -> tuple[Comparison, ...]:
    """Each arm's time over its baseline's, against the same of the stored session.

    The two arms of a session ran turn by turn, so what slowed the machine in one of the sessions
    has cancelled. Verdicts are those of two runs (`stats.changes`).
    """
    if len(stored.arms) < 2:
        return ()
    others = other_models(stored, new)
    pairs = list(zip(_cases(stored), _cases(new), strict=True))
    changes = [stats.change_of(before, after) for before, after in pairs]
    known = [change for change in changes if change is not None]
    before = max((c.aa_floor for c in stored.comparisons), default=floor)
    both = stats.change_floor(before, floor)
    rules = stats.Rules(margin=stored.method.margin)
    evaluated = iter(stats.evaluate(known, [both] * len(known), rules))
    base, estimator = new.arms[0].arm.name, stats.estimator_of(new.arms[0])
    made = []
    for arm, change in zip(new.arms[1:], changes, strict=True):
        name = f"{arm.arm.name} against {base}"
        one = Comparison(name + STORED, name, Verdict.CANNOT_TELL, estimator)
        one = replace(one, margin=rules.margin, aa_floor=both)
        if change is None:
            made.append(replace(one, reason="One of the two sessions has no ratio."))
            continue
        evaluation = next(evaluated)
        ratio = change.ratio(rules.level)
        ends = None if ratio.interval is None else (1 / ratio.interval[1], 1 / ratio.interval[0])
        found = replace(one, verdict=evaluation.verdict, time_ratio=1 / ratio.value)
        found = replace(found, threshold=evaluation.least)
        why = others.get(arm.arm.name) or others.get(base, "")
        made.append(_without_figures(replace(found, interval=ends), why))
    return tuple(made)


def _cases(result: Result) -> list[CaseMetrics]:
    """The log ratio of every arm but the first, with its error."""
    return [_case(result, arm) for arm in result.arms[1:]]


def _case(result: Result, arm: Measurement) -> CaseMetrics:
    spec = arm.arm
    key = CaseKey("", spec.target, "", spec.mode, spec.precision, spec.variant)
    case = CaseMetrics(key, Outcome.OK, level=1.0 - result.method.alpha)
    found = next((c for c in result.comparisons if c.new == spec.name), None)
    if found is None or not found.time_ratio:
        return case
    fit = stats.fit_ratio(result.arms[0], arm, stats.estimator_of(result.arms[0]))
    freedom = float(fit.df) if fit.replicates > 1 else None
    return replace(case, speedup=found.speedup, log_error=fit.std_error, log_freedom=freedom)


def _renamed(measurement: Measurement) -> Measurement:
    return replace(measurement, arm=replace(measurement.arm, name=measurement.arm.name + STORED))


# `torchstone repro --recipe`: files that rebuild a stored result's environment elsewhere.


_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r"(?:^|(?<=[\s='\"]))~?/[\w.][^\s'\"]*")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch keeps its builds for the CPU (`+cpu`); other indexes do not have them."""


def write_recipe(
    result: Result, folder: str, *, trust: bool = False, force: bool = False
) -> list[Path]:
    """A lock file, a Containerfile and a note on how to use them.

    A record from elsewhere says what a container runs, so it needs `trust`. Files that are there
    stay, but for `force`; a link is never written through.
    """
    _need_trust(result, trust)
    environment = next((arm.environment for arm in result.arms if arm.environment), None)
    if environment is None:
        raise UsageError(f"{result.id} has no environment on record: no arm got that far.")
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        files = {
            "requirements.lock": lock_file(environment, result.version),
            "Containerfile": containerfile(result, environment),
            "README.md": _readme(result, environment),
        }
        there = [name for name in files if os.path.lexists(place / name)]
        if there and not force:
            said = f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} in {folder} already."
            raise UsageError(said, "Choose another folder, or add --force.")
        for name, text in files.items():
            (place / name).unlink(missing_ok=True)
            with (place / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from None
    return [place / name for name in files]


def lock_file(environment: Environment, torchstone: str = "") -> str:
    """Every package at the version that was measured, and torchstone, which measures it.

    Builds for the CPU come from PyTorch's own index; other local labels are kept as comments.
    """
    packages = {**environment.packages, "torchstone": torchstone}
    lines = [
        f"# the environment of a measurement on Python {environment.python.get('version', '?')}"
    ]
    if any(version.endswith("+cpu") for version in packages.values()):
        lines.append(f"--extra-index-url {CPU_INDEX}")
    for name, version in sorted(packages.items()):
        if not (_PACKAGE.fullmatch(name) and _VERSION.fullmatch(version)):
            continue  # came from outside: nothing but a name and a version may pass
        public, _, local = version.partition("+")
        if local == "cpu":
            public, local = version, ""
        lines.append(f"{name}=={public}" + (f"  # measured build: {local}" if local else ""))
    return "\n".join(lines) + "\n"


def containerfile(result: Result, environment: Environment) -> str:
    """From the same Python, with the lock file installed and the same variables set."""
    version = environment.python.get("version", "3")
    version = version if _VERSION.fullmatch(version) else "3"
    lines = [
        f"FROM python:{version}-slim",
        "RUN apt-get update && apt-get install -y --no-install-recommends g++ git "
        "&& rm -rf /var/lib/apt/lists/*",
        "COPY requirements.lock /requirements.lock",
        "RUN pip install --no-cache-dir -r /requirements.lock",
    ]
    for name, value in sorted(environment.variables.items()):
        temporary = value.startswith(tempfile.gettempdir() + os.sep)  # not there in a container
        if _NAME.fullmatch(name) and name.isupper() and value.isprintable() and not temporary:
            quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
            lines.append(f'ENV {name}="{quoted}"')
    lines += ["COPY . /work", "WORKDIR /work"]
    words = [_one_line(word) for word in result.command]
    lines.append(f"CMD {json.dumps(words, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """Without control characters, which would do something where the file is shown."""
    return "".join(c if c.isprintable() else " " for c in text)


def _readme(result: Result, environment: Environment) -> str:
    git = environment.git
    commit = f"commit `{git.commit}`" if git else "no known commit"
    dirty = " with uncommitted changes, which are not recorded" if git and git.dirty else ""
    command = shlex.join(map(_one_line, result.command))
    cpu, memory = environment.cpu.get("model", "unknown CPU"), environment.memory_bytes / 2**30
    return (
        f"# Recipe for {result.id}\n\n"
        f"Measured from {commit}{dirty}. Check that out here, beside these files, then:\n\n"
        "    podman build -t torchstone-recipe .\n"
        "    podman run --rm torchstone-recipe\n\n"
        f"which runs `{command}`. Times depend on the machine ({cpu}, {memory:.0f} GiB);\n"
        "outcomes and outputs should not.\n"
        + _places_elsewhere(result)
        + _what_is_missing(result, environment)
    )


def _places_elsewhere(result: Result) -> str:
    """Files that the command names and no checkout has: they were elsewhere on that machine."""
    if any(arm.arm.statement is not None for arm in result.arms):
        return ""
    found = dict.fromkeys(place for word in result.command for place in _PLACE.findall(word))
    if not found:
        return ""
    return (
        f"\nThe command names places of the machine that it was run on: {', '.join(found)}.\n"
        "Put what is there beside these files too, and change the last line of `Containerfile`.\n"
    )


def _what_is_missing(result: Result, environment: Environment) -> str:
    """Arms that these files do not rebuild: they ran on another Python or with other packages."""
    other = []
    for arm in result.arms:
        found = arm.environment
        if found is None or _installed(found) == _installed(environment):
            continue
        python, torch = found.python.get("version", "?"), found.torch.get("version", "none")
        other.append(f"- `{arm.arm.name}`: Python {python}, torch {torch}\n")
    if not other:
        return ""
    return (
        "\nThe files rebuild the environment of the first arm. These arms had another one, which\n"
        "must be installed beside it under the name that the command gives (`python=...`):\n\n"
        + "".join(other)
    )


def _installed(environment: Environment) -> tuple[str | None, dict[str, str]]:
    return environment.python.get("version"), dict(environment.packages)

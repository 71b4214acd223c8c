"""One target at two revisions, measured turn by turn: what `check` and `bisect` share."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchstone import stats
from torchstone.conductor import Events, Settings, Templates
from torchstone.lab.bench import measure
from torchstone.lab.recording import Recorder
from torchstone.lab.request import check_arm, check_settings, option_words, repeated, settings_words
from torchstone.lab.secrets import public_env
from torchstone.lab.worktrees import Commit, Repository, Trees, build, import_path
from torchstone.machine.memory import usual_allocator
from torchstone.records import (
    ArmSpec,
    CaseKey,
    CaseMetrics,
    Measurement,
    Outcome,
    Result,
    UsageError,
)
from torchstone.track.check import Seen
from torchstone.workloads.target import Target, check_target, parse_target

BUDGET_S = 20.0
"""For turns, of each target; it ends as soon as the question is decided."""
MARGIN = 0.03
WITHIN = 0.005
"""More precise than this no gate at a margin of 1 % and more has to be."""
BASE, NEW = "base", "head"
"""Trees of equal length; the arms are called `base` and `new`."""


@dataclass(frozen=True)
class HowToRun:
    """How a target is run at every revision."""

    variant: str = "eager"
    mode: str = "inference"
    precision: str = "fp32"
    device: str = "cpu"
    threads: int | None = None
    python: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    allocator: str = ""
    build: str = ""
    import_path: tuple[str, ...] = ()
    settings: Settings = field(
        default_factory=lambda: Settings(BUDGET_S, WITHIN, MARGIN, until="checked")
    )

    def words(self) -> list[str]:
        """The options that ask for the same again; hidden variables by name only."""
        plain = HowToRun()
        names = ("variant", "mode", "precision", "device", "threads", "python", "build")
        settings = replace(self.settings, until="precise")
        return [
            *option_words(self, plain, *names),
            *repeated("--import-path", self.import_path),
            *(["--allocator", self.allocator] if self.allocator else []),
            *repeated("--env", (f"{name}={value}" for name, value in public_env(self.env))),
            *settings_words(settings, replace(plain.settings, until="precise")),
        ]


@dataclass(frozen=True)
class Side:
    """A revision in its tree, built."""

    commit: Commit
    tree: Path
    folder: Path
    """Where its processes run: what the current folder is in the tree."""
    env: tuple[tuple[str, str], ...]
    python: str | None

    def without_paths(self, text: str) -> str:
        """A message as it would read in the repository itself."""
        return text.replace(f"{self.tree}{os.sep}", "").replace(str(self.tree), ".")


def check_how(how: HowToRun) -> None:
    """Refuse what cannot work at any revision, before a tree is made."""
    check_settings(how.settings)
    python = None if how.python and os.sep in how.python else how.python
    check_arm(_arm(how, "base", "torchstone.workloads.load:run()", python, (), ""))


def make_side(
    trees: Trees, repository: Repository, name: str, commit: Commit, how: HowToRun, events: Events
) -> Side:
    """Check the revision out and build it; nothing is measured meanwhile."""
    events.phase(f"{commit.name or commit.short}: check out {commit.short}")
    tree = trees.add(name, commit)
    env = (*how.env, ("PYTHONPATH", import_path(repository, tree, how.import_path)))
    folder = tree / repository.inside
    if how.build:
        events.phase(f"{commit.name or commit.short}: build")
        build(tree, how.build, dict(env), commit.name or commit.short)
    python = how.python
    if python and os.sep in python and not os.path.isabs(python):
        own = tree / python
        python = str(own) if own.exists() else str(repository.here / python)
    return Side(commit, tree, folder if folder.is_dir() else tree, env, python)


def rooted(repository: Repository, text: str, folder: Path | None = None) -> str:
    """The target with its file as seen from the top of the repository; one outside stays where it
    is, and is the same for every revision. Relative paths count from `folder`."""
    target = parse_target(text)
    if target.kind != "file":
        return text
    path = Path(os.path.abspath((folder or repository.here) / target.place))
    if repository.top in path.parents:
        path = path.relative_to(repository.top)
    return replace(target, place=str(path)).text


def in_tree(side: Side, text: str) -> str:
    """The target as the side's workers find it."""
    target = parse_target(text)
    if target.kind != "file":
        return text
    return replace(target, place=str(side.tree / target.place)).text


def missing(side: Side, text: str) -> str:
    """Why the revision does not have the target; empty where it has, or only running can tell."""
    try:
        check_target(in_tree(side, text))
    except UsageError as error:
        return side.without_paths(error.message)
    return ""


def arm_at(side: Side, how: HowToRun, name: str, text: str) -> ArmSpec:
    """The target at that revision."""
    return _arm(how, name, in_tree(side, text), side.python, side.env, str(side.folder))


def _arm(
    how: HowToRun,
    name: str,
    target: str,
    python: str | None,
    env: tuple[tuple[str, str], ...],
    folder: str,
) -> ArmSpec:
    return ArmSpec(
        name=name,
        target=target,
        variant=how.variant,
        mode=how.mode,
        precision=how.precision,
        device=how.device,
        threads=how.threads,
        python=python,
        env=env,
        allocator=how.allocator or usual_allocator(),
        seed=how.settings.seed,
        folder=folder,
    )


@dataclass
class Pairing:
    """Measures targets at pairs of revisions, one after the other."""

    how: HowToRun
    recorder: Recorder | None
    events: Events
    templates: Templates
    command: tuple[str, ...]
    kind: str

    def measure(self, base: Side, new: Side, target: str, settings: Settings) -> Result:
        """Both revisions of a target, turn by turn."""
        arms = tuple(arm_at(side, self.how, name, target) for side, name in _named(base, new))
        arms = tuple(replace(arm, seed=settings.seed) for arm in arms)
        for arm in arms:
            check_arm(arm)
        label = f"{base.commit.short}..{new.commit.short} {target}"
        return measure(
            arms,
            settings,
            self.recorder,
            self.events,
            self.command,
            self.kind,
            label,
            self.templates,
        )


def _named(base: Side, new: Side) -> tuple[tuple[Side, str], ...]:
    return (base, "base"), (new, "new")


def seen_in(result: Result, target: str, sides: Sequence[Side], changed: Sequence[str]) -> Seen:
    """What a result says of its two revisions; `changed` are the files that differ."""
    base, new = result.arms[0], result.arms[1]
    said = result.comparisons[0] if result.comparisons else None
    bad = new if base.outcome.comparable else base
    side = sides[1] if base.outcome.comparable else sides[0]
    why = "" if bad.outcome.comparable else side.without_paths(bad.detail.message)
    seen = Seen(
        target,
        base.outcome,
        new.outcome,
        said=said,
        why=why,
        same_code=same_code(base, new, changed),
    )
    if said is None or not said.time_ratio:
        return seen
    fit = stats.fit_ratio(base, new, said.decided_by)
    case = CaseMetrics(
        CaseKey("", target, "", base.arm.mode, base.arm.precision, base.arm.variant),
        Outcome.OK,
        speedup=said.speedup,
        log_error=fit.std_error,
        log_freedom=float(fit.df) if fit.replicates > 1 else None,
        level=1.0 - result.method.alpha,
    )
    error = stats.promised_error(case)
    return replace(seen, change=stats.Change(-fit.centre, error), floor=said.aa_floor)


DOCUMENTS = (".md", ".rst", ".gitignore", "LICENSE")
DOCUMENT_FOLDERS = ("doc/", "docs/", ".github/")
"""Files that no program reads while it is measured. Any other, but for Python source, may be."""


def same_code(base: Measurement, new: Measurement, changed: Sequence[str]) -> bool:
    """Whether the change cannot have touched what these arms ran: the same packages are installed,
    the same files were loaded from both trees, and nothing else differs that might be read."""
    a, b = base.environment, new.environment
    if a is None or b is None or a.imports != b.imports:
        return False
    if (a.packages, a.python, a.torch) != (b.packages, b.python, b.torch):
        return False
    rest = [
        name
        for name in changed
        if not (name.endswith(DOCUMENTS) or name.startswith(DOCUMENT_FOLDERS))
    ]
    # Where nothing was loaded from the trees, a changed Python file may have been run otherwise.
    return all(a.imports and name.endswith((".py", ".pyi")) for name in rest)


def line_of(side: Side, text: str) -> tuple[str, int | None]:
    """Where the target is defined, for an annotation: its file from the top, and the line."""
    target: Target = parse_target(text)
    if target.kind != "file" or os.path.isabs(target.place):
        return "", None
    try:
        tree = ast.parse((side.tree / target.place).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return target.place, None
    wanted = target.name.split(".")[0]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    lines = (n.lineno for n in tree.body if isinstance(n, kinds) and n.name == wanted)
    return target.place, next(lines, None)


@dataclass
class Prefixed:
    """Progress of one target among several."""

    events: Events
    prefix: Callable[[], str]

    def phase(self, text: str) -> None:
        """With the target before it."""
        self.events.phase(f"{self.prefix()}{text}")

    def update(self, fraction: float, text: str, seconds_left: float | None) -> None:
        """The same."""
        self.events.update(fraction, f"{self.prefix()}{text}", seconds_left)

"""One target at two revisions, measured turn by turn: what `check` and `bisect` share.

Two revisions of a repository side by side: git work trees that never outlive their use.

All trees of a command lie in one temporary folder, under names of equal length: a path's length
moves the stack, which can shift a time by a per cent (Mytkowicz et al., 2009). A locked file in it
says that its owner lives. The lock goes with the process, however that ends, so the next command
in the same repository finds what a killed one left behind and removes it.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchstone import stats
from torchstone.conductor import Events, Settings, Templates
from torchstone.lab.bench import measure
from torchstone.lab.recording import Recorder
from torchstone.lab.request import check_arm, check_settings, option_words, repeated, settings_words
from torchstone.lab.secrets import public_env
from torchstone.machine.memory import usual_allocator
from torchstone.machine.redact import redact_text, tail
from torchstone.records import (
    ArmSpec,
    CaseKey,
    CaseMetrics,
    Measurement,
    NotRunError,
    Outcome,
    Result,
    UsageError,
)
from torchstone.track.check import Seen
from torchstone.workloads.target import Target, check_target, parse_target

PREFIX = "torchstone-trees-"
OWNER = "owner"
BUILD_LINES = 15
"""Of a build that failed: what is shown of its end."""
MAINS = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
"""Where the main branch is looked for, the server's first: the local one may hold the change."""
CI_BASES = {
    "GITHUB_BASE_REF": "origin/{}",
    "CI_MERGE_REQUEST_DIFF_BASE_SHA": "{}",
    "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "origin/{}",
}
"""What a pull request is to be merged into, as GitHub and GitLab say it."""
_NAME_BASE = "Fetch it, or name the base with --base."


@dataclass(frozen=True)
class Commit:
    """A commit, the word it was named by, and the first line of its message."""

    sha: str
    name: str = ""
    subject: str = ""
    dirty: bool = False
    """It is a snapshot of the working copy, whose files differ from the commit it stands on."""

    @property
    def short(self) -> str:
        """Enough digits for a person."""
        return self.sha[:10]


@dataclass(frozen=True)
class Repository:
    """The git repository around a folder."""

    top: Path
    here: Path
    """The folder that relative paths count from."""

    @property
    def inside(self) -> Path:
        """That folder, as seen from the top."""
        return self.here.relative_to(self.top)

    def ask(self, *arguments: str, env: Mapping[str, str] | None = None) -> str | None:
        """What git says; None where it refuses."""
        done = _git(self.top, arguments, env)
        return done.stdout.strip() if done.returncode == 0 else None

    def need(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """What git says, or its own words as an error."""
        done = _git(self.top, arguments, env)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise NotRunError(f"git {arguments[0]} failed: {redact_text(said, os.environ)}")
        return done.stdout.strip()

    @property
    def shallow(self) -> bool:
        """Whether a part of the history was never fetched."""
        return self.ask("rev-parse", "--is-shallow-repository") == "true"


def _git(
    folder: Path, arguments: Sequence[str], env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    # GIT_DIR and the like would make git answer for another repository, as inside a hook.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean.update({"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(env or {})})
    try:
        return subprocess.run(
            # No hook of the repository runs because a revision is measured.
            ["git", "-c", "core.hooksPath=/dev/null", "-C", str(folder), *arguments],
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise UsageError("git is not installed.", "Install it: revisions come from it.") from None


def find_repository(folder: str = ".") -> Repository:
    """The repository around the folder, or a sentence that there is none."""
    here = Path(folder).resolve()
    done = _git(here, ("rev-parse", "--show-toplevel"))
    if done.returncode or not done.stdout.strip():
        why = "has no files to measure (a bare repository?)" if not done.returncode else ""
        if "dubious ownership" in done.stderr:
            raise UsageError(
                f"git refuses {here}: it belongs to somebody else.",
                f"If you trust it: git config --global --add safe.directory {here}",
            )
        if "must be run in a work tree" in done.stderr:
            why = "is a git repository without a working copy"
        raise UsageError(
            f"{here} {why or 'is not inside a git repository'}.",
            "Change to the repository's folder first.",
        )
    return Repository(Path(done.stdout.strip()).resolve(), here)


# Which two revisions.


def find_commit(repository: Repository, word: str) -> Commit:
    """The commit that a word means."""
    sha = repository.ask(
        "rev-parse", "--verify", "--quiet", "--end-of-options", f"{word}^{{commit}}"
    )
    if sha is None:
        raise UsageError(f"There is no revision {word!r} here.", _fetch_remedy(repository, word))
    return Commit(sha, word, repository.ask("log", "-1", "--format=%s", sha) or "")


def working_copy(repository: Repository) -> Commit:
    """What is checked out, with changed and new files: HEAD itself, or a snapshot on top of it.

    The snapshot goes through an index of its own; nothing that `git status` shows is touched.
    Files that git ignores are not in it.
    """
    head = find_commit(repository, "HEAD")
    if repository.ask("ls-files", "--unmerged"):
        raise UsageError(
            "The working copy has merge conflicts.", "Resolve them, or name a commit with --new."
        )
    if not repository.ask("status", "--porcelain", "--ignore-submodules=dirty"):
        return Commit(head.sha, "working copy", head.subject)
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        index = os.path.join(folder, "index")
        env = {"GIT_INDEX_FILE": index}
        repository.need("read-tree", "HEAD", env=env)
        repository.need("add", "--all", env=env)
        tree = repository.need("write-tree", env=env)
    person = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "torchstone"), ("EMAIL", "torchstone@localhost"))
    }
    message = "snapshot of the working copy"
    sha = repository.need("commit-tree", tree, "-p", head.sha, "-m", message, env=person)
    return Commit(sha, "working copy", f"{head.subject} (with uncommitted changes)", dirty=True)


def merge_base(repository: Repository, new: Commit) -> Commit:
    """Where the change left the main branch."""
    targets = [
        form.format(value) for name, form in CI_BASES.items() if (value := os.environ.get(name))
    ]
    # Another branch than the one a pull request targets would be the wrong base, silently.
    candidates = targets or MAINS
    verify = ("rev-parse", "--verify", "--quiet", "--end-of-options")
    main = next((w for w in candidates if repository.ask(*verify, f"{w}^{{commit}}")), None)
    if main is None:
        what = "The branch that is merged into" if targets else "A main branch"
        raise UsageError(
            f"{what} was not found ({', '.join(candidates)}).",
            _fetch_remedy(repository, "") if repository.shallow else _NAME_BASE,
        )
    sha = repository.ask("merge-base", main, new.sha)
    if sha is None:
        raise UsageError(
            f"{main} and {new.name or new.short} have no common commit.",
            _fetch_remedy(repository, "") if repository.shallow else _NAME_BASE,
        )
    subject = repository.ask("log", "-1", "--format=%s", sha) or ""
    if sha == new.sha:
        raise UsageError(
            f"There is nothing to compare: the working copy is at {sha[:10]}, which {main} has.",
            "Name a base, e.g. --base HEAD~1.",
        )
    return Commit(sha, f"merge base with {main}", subject)


def _fetch_remedy(repository: Repository, word: str) -> str:
    if repository.shallow:
        return (
            "This clone is shallow. Run `git fetch --unshallow`, "
            "or check out with fetch-depth: 0 (GitLab: GIT_DEPTH: 0)."
        )
    return "`git branch --all` and `git tag` list names." if word else _NAME_BASE


def changed_files(repository: Repository, base: Commit, new: Commit) -> tuple[str, ...]:
    """The paths that differ between two revisions, as seen from the top."""
    text = repository.need("diff", "--name-only", "--no-renames", "-z", base.sha, new.sha)
    return tuple(filter(None, text.split("\0")))


# The trees.


@dataclass
class Trees:
    """The work trees of one command. `owner` is the locked file; it keeps them from being removed
    as left behind."""

    repository: Repository
    folder: Path
    owner: int
    names: list[str] = field(default_factory=list)

    def add(self, name: str, commit: Commit) -> Path:
        """A tree of this commit; one of that name before it is gone first."""
        if name in self.names:
            self.remove(name)
        path = self.folder / name
        self.names.append(name)
        self.repository.need("worktree", "add", "--detach", "--quiet", str(path), commit.sha)
        return path

    def remove(self, name: str) -> None:
        """Take a tree away, with whatever was built in it."""
        _remove(self.repository, self.folder / name)
        with contextlib.suppress(ValueError):
            self.names.remove(name)

    def close(self) -> None:
        """All of them, and their folder."""
        for name in list(self.names):
            self.remove(name)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.owner)


@contextmanager
def open_trees(repository: Repository) -> Iterator[Trees]:
    """Trees for one command, gone afterwards; first, those that a killed one left are removed."""
    remove_abandoned(repository)
    # Resolved: libraries are found by the paths that the system knows them by.
    folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    owner = os.open(folder / OWNER, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(owner, fcntl.LOCK_EX)
    trees = Trees(repository, folder, owner)
    try:
        yield trees
    finally:
        with _finishing():
            trees.close()


@contextmanager
def _finishing() -> Iterator[None]:
    """A second Ctrl-C while trees are removed does not leave half of them."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def remove_abandoned(repository: Repository) -> list[str]:
    """Remove trees of ours whose owner is gone; returns their paths."""
    removed = []
    listed = repository.ask("worktree", "list", "--porcelain", "-z") or ""
    for entry in listed.split("\0"):
        if not entry.startswith("worktree "):
            continue
        path = Path(entry.removeprefix("worktree "))
        if path.parent.name.startswith(PREFIX) and not _has_owner(path.parent):
            _remove(repository, path)
            shutil.rmtree(path.parent, ignore_errors=True)
            removed.append(str(path))
    return removed


def _has_owner(folder: Path) -> bool:
    """Whether a living process holds the folder."""
    try:
        owner = os.open(folder / OWNER, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:  # somebody else's: not ours to remove
        return True
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(owner)
    return False


def _remove(repository: Repository, path: Path) -> None:
    repository.ask("worktree", "remove", "--force", "--force", str(path))
    shutil.rmtree(path, ignore_errors=True)
    repository.ask("worktree", "remove", "--force", "--force", str(path))  # it may be listed still


# What an arm of a tree needs: its environment, and a build before anything is measured.


def import_path(repository: Repository, tree: Path, folders: Sequence[str]) -> str:
    """PYTHONPATH of a tree's arms: its own folders, then what is set already.

    Entries inside the repository are turned into the tree's, so that the working copy is never
    imported in place of a revision.
    """
    chosen = folders or (".", "src")
    own = [os.path.normpath(tree / one) for one in chosen if folders or (tree / one).is_dir()]
    given = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    for one in given:
        path = Path(os.path.normpath(repository.here / one))
        inside = path == repository.top or repository.top in path.parents
        own.append(str(tree / path.relative_to(repository.top)) if inside else one)
    # Twice, where there is one only: messages are cleaned of every value that an arm was given,
    # and its tracebacks begin with that path.
    return os.pathsep.join(own if len(own) > 1 else own * 2)


def build(tree: Path, command: str, env: Mapping[str, str], side: str) -> None:
    """Run the build step in a tree; `NotRunError` with the end of what it said."""
    try:
        done = subprocess.run(
            command,
            shell=True,
            cwd=tree,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise NotRunError(f"The build of {side} could not be started: {error.strerror}.") from None
    if done.returncode:
        end = tail(redact_text(done.stdout, os.environ), BUILD_LINES)
        raise NotRunError(
            f"The build of {side} failed with exit code {done.returncode}: {command}",
            "\n  ".join(end) or "It said nothing.",
        )


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

"""What is left when `bench`, `run` and `serve` are killed, stopped or starved at random moments.

Each trial starts a command in a folder of its own, sends a signal to the whole tree or to one
process of it at a random moment, and looks at what there is afterwards: processes, temporary
folders, locks, the database and the exit code. Then disks that are full or read-only, and a time of
day that jumps. `--trials 100` is the measurement in the docs; `--trials 6` a small one.
With `--out` every trial is written at once, and a second call goes on after `--for` has ended it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HONEST = ROOT / "tests" / "targets" / "honest.py"
NET = ROOT / "tests" / "targets" / "nets.py"
"""Variants are for models; a function without torch has none."""
MARK = "TORCHSTONE_CHAOS"
MAIN = "from torchstone.cli import main; main()"
DOCUMENTED = {0, 1, 130, 143}
"""And where a command was killed itself, which leaves it no code of its own, the signal."""
STORED = re.compile(r"^id (\w+) ·", re.MULTILINE)
SIGNALS = ("KILL", "TERM", "INT", "STOP")
LONGEST_S = 400.0
STOPPED_S = 1.0
GONE_S = 15.0
COMMANDS = {
    "bench": ("bench", f"{HONEST}:make", f"{HONEST}:make_slow", "--budget", "2s"),
    "run": ("run", "suite.toml", "--variants", "eager+no_grad", "--label", "chaos"),
    "serve": ("serve", "--port", "0"),
}
MOMENTS_S = {"bench": 9.0, "run": 20.0, "serve": 3.0}
MODELS = ("one", "two")
MOST_RESULTS = {"bench": 1, "run": 1 + len(MODELS), "serve": 0}
"""And the run itself."""
_LAST_RUN = """select key, count(result) from run_case
    where run = (select max(seq) from run where label = 'chaos') group by key"""
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    static int calls;
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, t);
    if (!failed && clock == CLOCK_REALTIME && ++calls % 40 > 20) t->tv_sec += 3600;
    return failed;
}
"""


@dataclass
class Trial:
    """One command, what was done to it, and what was wrong afterwards."""

    command: str
    what: str
    exit_code: int | None = None
    faults: list[str] = field(default_factory=list)


@dataclass
class Place:
    """A folder with a database, temporary files and a suite, and the commands that run in it."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.db, self.temporary = self.folder / "chaos.db", self.folder / "tmp"
        self.temporary.mkdir()
        text = "".join(f'[[model]]\nname = "{n}"\ntarget = "{NET}:make"\n' for n in MODELS)
        (self.folder / "suite.toml").write_text(text)

    def start(self, *words: str, db: Path | None = None, **env: str) -> subprocess.Popen[str]:
        """A command, in a session of its own, with Ctrl-C as a terminal would leave it."""
        own = {"TMPDIR": str(self.temporary), "HOME": str(self.folder), MARK: self.mark}
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *words, "--db", str(db or self.db)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, **own, "PYTHONPATH": path, **env},
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
        )

    def processes(self) -> list[int]:
        """All that carry our mark, however they were started."""
        entry, found = f"{MARK}={self.mark}".encode(), []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if entry in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
        return [pid for pid in found if pid != os.getpid()]

    def stored(self, db: Path | None = None) -> tuple[list[str], list[tuple[int, str]]]:
        """Results and runs by id, cases by run and key; all of them, to see double ones."""
        path = db or self.db
        if not path.exists() or not path.stat().st_size:
            return [], []
        with sqlite3.connect(path) as opened:
            assert opened.execute("pragma integrity_check").fetchone() == ("ok",)
            both = "select id from result union all select id from run"
            results = [row[0] for row in opened.execute(both)]
            cases = opened.execute("select run, key from run_case").fetchall()
        opened.close()
        return results, cases


def words_of(command: str) -> tuple[str, ...]:
    """As it is called in a trial."""
    few = ("--budget-per-case", "0.3s") if command == "run" else ()
    return (*COMMANDS[command], *few, *(() if command == "serve" else ("--replicates", "2")))


def trial(place: Place, chance: random.Random) -> Trial:
    """One command and one signal."""
    command, name = chance.choice(list(COMMANDS)), chance.choice(SIGNALS)
    whole = chance.random() < 0.5
    done = Trial(command, f"SIG{name} to {'the whole tree' if whole else 'one process'}")
    before = place.stored()
    process = place.start(*words_of(command))
    time.sleep(chance.random() * MOMENTS_S[command])
    everyone = place.processes()
    hit = everyone if whole else [chance.choice(everyone)] if everyone else []
    strike(hit, name)
    if command == "serve" and process.poll() is None:
        process.send_signal(signal.SIGINT)  # a server ends when it is told to
    itself = process.pid in hit
    done.exit_code, out = ended(process, done, killed=itself and name == "KILL")
    look(place, done, before, itself=itself, name=name, shown=STORED.findall(out))
    return done


def strike(hit: list[int], name: str) -> None:
    """Send the signal; what is stopped goes on after a while."""
    number = signal.Signals[f"SIG{name}"]
    for pid in hit:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    if name == "STOP":
        time.sleep(STOPPED_S)
        for pid in hit:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def ended(
    process: subprocess.Popen[str], done: Trial, killed: bool = False
) -> tuple[int | None, str]:
    """Its exit code and what it printed; one that hangs, or shows a traceback, is at fault."""
    try:
        out, err = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        done.faults.append(f"did not end within {LONGEST_S:g} s")
        return None, ""
    if "Traceback" in err:
        done.faults.append(f"traceback: {err.splitlines()[-1][:200]}")
    code = process.returncode
    if code == -signal.SIGTERM:  # before our handler was there; every shell calls it so
        code = 128 + signal.SIGTERM
    if code not in DOCUMENTED and not (killed and code == -signal.SIGKILL):
        done.faults.append(f"exit code {code} is not documented: {err[-200:]}")
    return code, out


def look(
    place: Place,
    done: Trial,
    before: tuple[list[str], list[tuple[int, str]]],
    itself: bool,
    name: str,
    shown: Sequence[str] = (),
) -> None:
    """What is left, lost or doubled; `shown` are the results that the command said it stored."""
    deadline = time.monotonic() + GONE_S
    while place.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    if left := place.processes():
        done.faults.append(f"{len(left)} process(es) left")
        strike(left, "KILL")
    folders = list(place.temporary.glob("torchstone-*"))
    if folders and not (name == "KILL" and itself):
        done.faults.append(f"{len(folders)} folder(s) left by a command that could end itself")
    sweep(place)
    if folders := list(place.temporary.glob("torchstone-*")):
        done.faults.append(f"{len(folders)} folder(s) left after the next start")
    try:
        results, cases = place.stored()
    except (sqlite3.Error, AssertionError) as error:
        done.faults.append(f"the database is damaged: {error}")
        return
    if not {*before[0], *shown} <= set(results) or not set(before[1]) <= set(cases):
        done.faults.append("something that was stored is gone")
    if len(results) - len(before[0]) > MOST_RESULTS[done.command] or len({*cases}) < len(cases):
        done.faults.append("something is stored twice")
    if signs := [path for path in place.folder.glob("*.alive/*") if is_locked(path)]:
        done.faults.append(f"{len(signs)} lock(s) left")


def sweep(place: Place) -> None:
    """What the next start does with the folders of programs that are gone."""
    program = "from torchstone.machine.folders import sweep; sweep()"
    env = {**os.environ, "TMPDIR": str(place.temporary), "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", program], env=env, check=True)


def is_locked(path: Path) -> bool:
    """Whether somebody holds it."""
    import fcntl

    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def resumed(place: Place) -> Trial:
    """The last run goes on to its end, whatever was done to it: each case once."""
    done = Trial("run --resume", "after all of that")
    process = place.start("run", "--resume", "chaos")
    done.exit_code, _ = ended(process, done)
    with sqlite3.connect(place.db) as opened:
        rows = opened.execute(_LAST_RUN).fetchall()
    opened.close()
    if done.exit_code != 0 or [found for _, found in rows] != [1] * len(MODELS):
        done.faults.append(f"exit code {done.exit_code}, results of its cases: {rows}")
    return done


def _fails(words: list[str]) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode != 0


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path | None]:
    """A small file system; None where that is not allowed."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if shutil.which("mount") is None or _fails(words):
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no byte free."""
    with open(folder / "filler", "ab", buffering=0) as file:
        for size in (65536, 512, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)


def on_disk(place: Path, what: str, spoil: Callable[[Path], None]) -> Trial:
    """`bench` with its database on a disk that does not take it: shown, said, exit code 1 or 2."""
    done = Trial("bench", what)
    with mounted(place / "disk", "size=1m") as disk:
        if disk is None:
            done.what += " (not tried: may not mount)"
            return done
        inside = Place(_made(place / f"place-{uuid.uuid4().hex}"))
        spoil(disk)
        process = inside.start(*words_of("bench"), db=disk / "x.db")
        out, err = process.communicate(timeout=LONGEST_S)
        done.exit_code = process.returncode
        if done.exit_code not in (1, 2) or "Traceback" in err:
            done.faults.append(f"exit code {done.exit_code}: {err[-200:]}")
        if done.exit_code == 1 and "make" not in out:
            done.faults.append("what was measured is not shown")
    shutil.rmtree(place / "disk", ignore_errors=True)
    return done


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def read_only(disk: Path) -> None:
    """As a disk after a fault."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def clock_jumps(place: Place) -> Trial:
    """The time of day goes an hour ahead and back, all the time; nothing is measured by it."""
    done = Trial("bench", "the time of day jumps")
    source, library = place.folder / "shim.c", place.folder / "shim.so"
    source.write_text(SHIM)
    words = ["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    if shutil.which("cc") is None or _fails(words):
        done.what += " (not tried: no C compiler)"
        return done
    before = place.stored()
    process = place.start(*words_of("bench"), LD_PRELOAD=str(library))
    done.exit_code, _ = ended(process, done)
    if done.exit_code != 0:
        done.faults.append(f"exit code {done.exit_code}")
    look(place, done, before, itself=False, name="")
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write each trial to this file, and go on there")
    parser.add_argument("--for", type=float, dest="seconds", default=math.inf, metavar="SECONDS")
    asked = parser.parse_args()
    until, kept = time.monotonic() + asked.seconds, read_trials(asked.out)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(_made(Path(folder) / "place"))
        for number in range(len(kept), asked.trials):
            if time.monotonic() > until:
                print(f"{len(kept)} of {asked.trials} trials; the same command goes on.")
                return 0
            keep(kept, trial(place, random.Random(f"{asked.seed} {number}")), asked.out)
        if len(kept) == asked.trials:
            if place.stored()[1]:
                keep(kept, resumed(place), asked.out)
            keep(kept, on_disk(Path(folder), "a full disk", fill), asked.out)
            keep(kept, on_disk(Path(folder), "a read-only disk", read_only), asked.out)
            keep(kept, clock_jumps(place), asked.out)
    return summary(kept)


def read_trials(path: Path | None) -> list[Trial]:
    """Those of earlier calls."""
    if path is None or not path.exists():
        return []
    return [Trial(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def keep(kept: list[Trial], one: Trial, path: Path | None) -> None:
    """Note it, in the file too, and show it."""
    kept.append(one)
    shown(one, len(kept))
    if path is not None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(one)) + "\n")


def summary(trials: list[Trial]) -> int:
    """How many had a fault, and what the commands returned; 1 where one had."""
    faulty = sum(bool(one.faults) for one in trials)
    codes = Counter(str(one.exit_code) for one in trials)
    told = ", ".join(f"{code} × {number}" for code, number in sorted(codes.items()))
    print(f"{len(trials)} trials, {faulty} with a fault; exit codes {told}.")
    return 1 if faulty else 0


def shown(one: Trial, number: int) -> None:
    """One line a trial."""
    said = "; ".join(one.faults) or "ok"
    print(f"{number:4} {one.command:13} {one.what:32} exit {one.exit_code}: {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

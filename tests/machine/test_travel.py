"""The room travels: other interpreters, nothing but the standard library, systems without /proc."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.machine.support import SOURCE, clean_env, run
from torchstone.machine.interpreters import known_interpreters, resolve_interpreter
from torchstone.records import UsageError

USE_EVERYTHING = """
import json, os, sys
from torchstone.machine.memory import *
from torchstone.machine.noise import *
from torchstone.machine.processes import *
from torchstone.machine.redact import *
from torchstone.machine.software import *
from torchstone.records import to_data
before = snapshot()
probe = make_probe()
noise = difference(before, snapshot(), probe(), 1)
assert probe() > 0
record = describe_environment({"HF_TOKEN": "planted-secret"}, os.getcwd(), {"torch": 1}, "default")
text = json.dumps([to_data(record), to_data(noise)])
assert "planted-secret" not in text
assert "planted-secret" not in redact_text("x planted-secret", {"HF_TOKEN": "planted-secret"})
step_peak(lambda: bytearray(1 << 20))
fault_cost_ns(), rss_bytes(), peak_bytes(), trim(), by_thread(os.getpid(), 0)
wait_until_quiet(os.getppid(), 0.01), tagged_processes("A", "B"), oom_kills(), memory_available()
outside = {m.partition(".")[0] for m in sys.modules} - set(sys.stdlib_module_names)
print(sorted(m for m in outside if not m.startswith(("__", "torchstone"))), sys.version_info[1])
"""


def _payload(folder: Path) -> Path:
    """What a worker is given: three rooms and nothing else."""
    (folder / "torchstone").mkdir(parents=True)
    shutil.copy(Path(SOURCE, "torchstone", "__init__.py"), folder / "torchstone")
    for room in ("records", "machine"):
        shutil.copytree(Path(SOURCE, "torchstone", room), folder / "torchstone" / room)
    return folder


def _interpreter(minor: int) -> str:
    if minor == sys.version_info[1]:
        return sys.executable
    try:
        return resolve_interpreter(f"python3.{minor}")
    except UsageError:
        pytest.skip(f"no Python 3.{minor} here: {sorted(known_interpreters())}")


@pytest.mark.parametrize("minor", [10, 11, 12, 13, 14])
def test_every_interpreter_runs_it_with_the_standard_library_alone(
    minor: int, tmp_path: Path
) -> None:
    env = clean_env(PYTHONPATH=str(_payload(tmp_path)), PYTHONNOUSERSITE="1")
    told = run(USE_EVERYTHING, env, _interpreter(minor), "-S")  # -S: no installed packages
    assert told == f"[] {minor}"


WITHOUT_PROC = """
import builtins, os, sys
def elsewhere(real):
    def wrapped(path, *rest, **more):
        if isinstance(path, str) and path.startswith(("/proc", "/sys")):
            raise FileNotFoundError(path)
        return real(path, *rest, **more)
    return wrapped
os.open, os.listdir, builtins.open = map(elsewhere, (os.open, os.listdir, builtins.open))
from torchstone.machine.memory import *
from torchstone.machine.noise import *
from torchstone.machine.processes import *
from torchstone.machine.software import *
s = snapshot()
print(s.wait_ns, s.steal_ns, s.pressure_ns, s.throttled_ns, by_thread(os.getpid(), 0),
      wait_until_quiet(os.getpid(), 1.0), tagged_processes("A", "B"), oom_kills(), rss_bytes(),
      peak_bytes(), reset_peak(), step_peak(lambda: None))
e = describe_environment({}, None, {}, "default")
assert memory_available() > 0 and e.memory_bytes > 0 and e.cpu["model"] and e.machine_id
"""


def test_without_proc_it_says_nothing_and_does_not_fail() -> None:
    # The files are hidden from a real process, because a system without them is not to be had.
    told = run(WITHOUT_PROC)
    assert told == "None None None None {} (None, 0) [] 0 None None False None"


def test_the_sources_name_no_torch_import() -> None:
    folder = Path(SOURCE, "torchstone", "machine")
    for path in folder.glob("*.py"):
        assert not re.search(r"^\s*(?:import|from) torch\b", path.read_text(), re.M), path
    assert os.path.exists(folder / "__init__.py")

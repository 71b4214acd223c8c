"""Accelerators, by what `nvidia-smi` says: who else uses them, and whether they are held back."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

from torchstone.machine.doctor.base import FunctionCheckup, View, fix, note, ok, unseen, warn
from torchstone.records import Finding
from torchstone.records.format import count, percent

NAME = "accelerator"
BUSY_SHARE = 0.05
"""Ours, as for the CPU: a twentieth is more than a display takes."""
HELD_BACK = 0x08 | 0x20 | 0x40 | 0x80
"""Bits of the reasons for a lower clock: hardware slowdown, heat by driver or hardware, power."""
TIMEOUT_S = 10.0
_QUERY = (
    "index,name,utilization.gpu,temperature.gpu,persistence_mode,clocks_throttle_reasons.active"
)
_APPS = "pid,process_name"


def _look(view: View) -> Iterator[Finding]:
    program = shutil.which("nvidia-smi", path=view.env.get("PATH") or os.defpath)
    wanted = view.device.split(":")[0] == "cuda"
    if program is None or not (wanted or view.device == "cpu"):
        yield unseen(NAME, _why(view, program))
        return
    try:
        cards = _ask(program, f"--query-gpu={_QUERY}")
        apps = _ask(program, f"--query-compute-apps={_APPS}")
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        yield unseen(NAME, f"nvidia-smi failed ({' '.join(str(error).split())})")
        return
    others = [row for row in apps if row[0] != str(os.getpid())]
    if others:
        names = ", ".join(f"{os.path.basename(row[-1])} ({row[0]})" for row in others)
        said = f"used by {count(len(others), 'other process', 'other processes')}: {names}"
        make = warn if wanted else note
        remedy = "Stop them, or wait until they are done."
        yield make(NAME, said, remedy, processes=float(len(others)))
    for card in cards:
        if len(card) == len(_QUERY.split(",")):
            yield _card(card, wanted)
    if not cards:
        yield unseen(NAME, "nvidia-smi lists none")


def _why(view: View, program: str | None) -> str:
    if view.device not in ("cpu", "cuda") and not view.device.startswith("cuda:"):
        return f"nothing here knows about {view.device}"
    return "there is no nvidia-smi" if program is None else "it was not asked for"


def _ask(program: str, query: str) -> list[list[str]]:
    done = subprocess.run(
        [program, query, "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise ValueError(said[0] if said else f"exit code {done.returncode}")
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return [[cell.strip() for cell in line.split(",")] for line in lines]


def _card(card: list[str], wanted: bool) -> Finding:
    index, name, busy, degrees, persistence, reasons = card
    share, heat = _number(busy), _number(degrees)
    known = {"utilisation": share and share / 100, "temperature_c": heat}
    figures = {key: value for key, value in known.items() if value is not None}
    busy = "how busy it is cannot be seen" if share is None else f"{percent(share / 100)} busy"
    said = f"{name} ({index}): {busy}" + ("" if heat is None else f", {heat:.0f} degrees")
    make = warn if wanted else note
    if _bits(reasons) & HELD_BACK:
        remedy = "Let it cool down, or raise its power limit."
        return make(NAME, f"{said}, clock held back (reasons {reasons})", remedy, **figures)
    if share is None:
        return note(NAME, said, **figures)
    if share / 100 > BUSY_SHARE:
        return make(NAME, said, "Stop what uses it, or wait until it is done.", **figures)
    if persistence == "Disabled" and wanted:
        said += "; the driver unloads between processes"
        remedy = "Keep the driver loaded: the first call is quicker and the clock steadier."
        command = f"sudo nvidia-smi -i {index} -pm"
        fixes = [fix(f"{command} 1", "keeps the driver loaded", f"{command} 0")]
        return note(NAME, said, remedy, fixes, **figures)
    return ok(NAME, said, **figures)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A]: this card does not say
        return None


def _bits(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


ACCELERATOR = FunctionCheckup(NAME, "host noise, on the device", _look)

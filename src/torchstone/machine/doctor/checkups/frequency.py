"""Who decides how fast the cores run: the governor, and boost above the nominal clock."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.machine.doctor.base import FunctionCheckup, fix, note, ok, unseen, warn
from torchstone.machine.doctor.view import CPU, View
from torchstone.machine.doctor.words import count
from torchstone.records import Finding

STEADY = "performance"
"""The governor that holds the highest clock; every other one answers to the load (R5: a clock that
drifts by more than 3 % is reason enough to repeat)."""
_INTEL = f"{CPU}/intel_pstate/no_turbo"
_GENERIC = f"{CPU}/cpufreq/boost"


def _governor(view: View) -> Iterator[Finding]:
    seen = {
        core: name
        for core in sorted(view.cores)
        if (name := view.text(f"{CPU}/cpu{core}/cpufreq/scaling_governor"))
    }
    other = sorted({name for name in seen.values() if name != STEADY})
    if not seen:
        yield unseen("governor", "the system shows no frequency control")
    elif not other:
        yield ok("governor", f"{STEADY} on {count(len(seen), 'core')}", cores=float(len(seen)))
    else:
        slow = sum(name != STEADY for name in seen.values())
        yield warn(
            "governor",
            f"{', '.join(other)} on {slow} of {count(len(seen), 'core')}: the clock follows the "
            "load, so short work runs slower than long work",
            f"Set the governor to {STEADY} while you measure.",
            [
                fix(
                    f"sudo cpupower frequency-set -g {STEADY}",
                    "holds the highest clock on all cores",
                    f"sudo cpupower frequency-set -g {other[0]}",
                )
            ],
            cores=float(len(seen)),
            not_steady=float(slow),
        )


def _boost(view: View) -> Iterator[Finding]:
    for path, on, off in ((_INTEL, "0", "1"), (_GENERIC, "1", "0")):
        state = view.text(path)
        if state is None:
            continue
        if state == off:
            yield ok("boost", "off: the clock does not depend on heat", on=0.0)
            return
        yield note(
            "boost",
            "on: the clock depends on heat and on how many cores are busy",
            "For fine comparisons switch it off; figures then hold for the nominal clock.",
            [
                fix(
                    f"echo {off} | sudo tee /{path}",
                    "switches boost off",
                    f"echo {on} | sudo tee /{path}",
                )
            ],
            on=1.0,
        )
        return
    yield unseen("boost", "the system does not say whether the clock may rise")


GOVERNOR = FunctionCheckup("governor", "R5: clock drift", _governor)
BOOST = FunctionCheckup("boost", "R5: boost gave 118 % of a nominal peak", _boost)

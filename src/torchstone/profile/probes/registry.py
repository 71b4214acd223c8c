"""Probes by name or by way, through entry points."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import cast

from torchstone.profile.probes.base import Probe, ProbeOptions
from torchstone.records import WAYS, UsageError
from torchstone.records.doors import by_name, must_be_some

ENTRY_POINTS = "torchstone.probes"
PREFERRED = ("sampler", "py-spy", "cprofile", "torch", "memory")
"""Of several that go the same way, the first of these that can be used; then others by name. The
sampler costs what cannot be measured; py-spy stops the process for each look."""


@cache
def known_probes() -> dict[str, metadata.EntryPoint]:
    """Installed probes by name; nothing is imported."""
    return by_name(ENTRY_POINTS)


def choose_probe(how: str, options: ProbeOptions) -> Probe:
    """The probe of that name, or the best of that way that can be used here; else a `UsageError`
    that says why none can."""
    known = known_probes()
    must_be_some(known)
    if how in known:
        probes = [_make(how, options)]
    elif how in WAYS:
        probes = [probe for name in _in_order() if (probe := _make(name, options)).how == how]
    else:
        names = ", ".join((*WAYS, *sorted(known)))
        raise UsageError(f"There is no way to profile called {how!r}.", f"Choose from {names}.")
    reasons = []
    for probe in probes:
        reason = probe.unavailable()
        if not reason:
            return probe
        reasons.append(f"{probe.name}: {reason}")
    said = "; ".join(reasons) or "no probe is installed that could"
    raise UsageError(f"This cannot be profiled with --how {how} ({said}).", "Choose another way.")


def _make(name: str, options: ProbeOptions) -> Probe:
    return cast("Probe", known_probes()[name].load()(options))


def _in_order() -> list[str]:
    known = known_probes()
    first = [name for name in PREFERRED if name in known]
    return first + sorted(set(known) - set(first))

"""Probes: what takes a profile of the process that it runs in.

Holds: the shape of a probe (`base`), one file for each of ours, and the registry by which they and
everybody's are found (`PROBES`, entry points of the group `torchstone.probes`). Touches: the
process it runs in, which it slows down; so a probe never runs in a process that is timed. torch is
imported only by a probe that is started.
"""

from torchstone.profile.probes.base import PROBES, ProbeOptions, choose_probe, known_probes

__all__ = ["PROBES", "ProbeOptions", "choose_probe", "known_probes"]

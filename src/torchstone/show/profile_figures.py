"""The words and figures of a profile that its text, its page and its picture share."""

from __future__ import annotations

from torchstone.records import Cost, Profile
from torchstone.show.profile_tree import FunctionRow
from torchstone.show.units import format_bytes, format_interval, format_ratio, format_seconds


def format_amount(value: float, unit: str, *, ascii_only: bool = False) -> str:
    """A weight in the unit of its tree."""
    if unit == "seconds":
        return format_seconds(value, 3, ascii_only=ascii_only)
    if unit == "bytes":
        return format_bytes(value)
    whole = round(value)
    return f"{whole:,}" if abs(value - whole) < 1e-9 else f"{value:,.1f}"


def shares(profile: Profile, row: FunctionRow, whole: float) -> tuple[float | None, float | None]:
    """Own and total as shares of the whole; None where there is no whole."""
    if not whole > 0:
        return None, None
    return row.own / whole, row.total / whole


def sampled_interval(
    profile: Profile, part: float, whole: float, unit: str
) -> tuple[float, float] | None:
    """The interval of a share of samples; None where nothing was sampled."""
    from torchstone.stats.share import share_interval

    samples = samples_of(profile, whole, unit)
    if samples is None or not whole > 0:
        return None
    return share_interval(part / whole * samples, samples)


def samples_of(profile: Profile, whole: float, unit: str) -> float | None:
    """How many samples the whole stands for; None where nothing was sampled."""
    if profile.sampling is None:
        return None
    return whole if unit == "samples" else float(profile.sampling.samples)


def work_of(profile: Profile) -> str:
    """What it is of, whatever way it was looked at: its label without the way."""
    return profile.label.removesuffix(f" ({profile.how})")


def cost_words(cost: Cost, *, ascii_only: bool = False) -> str:
    """What profiling cost, beside what the machine makes of nothing."""

    def said(ratio: float, interval: tuple[float, float]) -> str:
        shown = format_ratio(ratio, 2, ascii_only=ascii_only)
        return f"{shown} ({format_interval(interval, 2, ascii_only=ascii_only)})"

    words = (
        f"profiling took {said(cost.ratio.time_ratio, cost.ratio.interval)} of the unprofiled time;"
        f" unprofiled against unprofiled: {said(cost.control.time_ratio, cost.control.interval)}"
    )
    low, high = cost.ratio.interval
    calm_low, calm_high = cost.control.interval
    if low <= calm_high and calm_low <= high:
        words += "; the two cannot be told apart"
    return words


def facts_of(profile: Profile) -> list[tuple[str, str]]:
    """Names and values of what the profile is, those that it has."""
    sampling = profile.sampling
    taken = ""
    if sampling is not None:
        taken = f"{sampling.samples:,}"
        if sampling.interval_s > 0:
            taken += f" every {format_seconds(sampling.interval_s, 3)}"
        taken += f", {sampling.clock} clock, {sampling.lost:,} lost"
    facts = [
        ("how", profile.how),
        ("tool", profile.tool),
        ("taken", profile.created),
        ("wall time", format_seconds(profile.wall_s, 3) if profile.wall_s else ""),
        ("steps", f"{profile.steps:,}" if profile.steps else ""),
        ("samples", taken),
        (
            "call paths",
            "estimated: the source knows callers, not paths" if profile.estimated else "",
        ),
        ("command", " ".join(profile.command)),
        ("from", "" if profile.origin == "here" else profile.origin),
        *((str(key), str(value)) for key, value in profile.facts.items()),
    ]
    return [(name, value) for name, value in facts if value]

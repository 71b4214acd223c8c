"""ISO 8601 times: as seconds, so that they can be compared across zones, and of this moment."""

from __future__ import annotations

from datetime import datetime, timezone


def seconds_of(moment: datetime | str) -> float | None:
    """UTC seconds since 1970; None if it is not a time. Without a zone, UTC is meant."""
    if isinstance(moment, str):
        text = moment.strip()
        if text.endswith(("Z", "z")):  # Python 3.10 does not read it
            text = text[:-1] + "+00:00"
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    try:
        return moment.timestamp()
    except (OverflowError, ValueError):
        return None


def now() -> str:
    """This moment, to the second, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

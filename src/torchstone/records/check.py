"""A rule applied to a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Level(str, Enum):
    """How much a check weighs. Only `fail` makes a number unfit to be believed."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """What one rule found: a sentence with the remedy, and the figures it used.

    `arms` names the arms it speaks of (empty: the whole result).
    """

    rule: str
    level: Level
    message: str
    figures: Mapping[str, float] = field(default_factory=dict)
    arms: tuple[str, ...] = ()

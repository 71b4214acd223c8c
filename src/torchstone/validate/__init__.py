"""Rules: records in, checks out. Whether a number may be believed, and why not.

Holds: the shape of a rule, the registry that finds and runs them, the rules by subject in
`rules/`, which peaks are sound, and what asks to be measured again. Touches: nothing; a rule reads
records and never alters one. Imports only `records` and `stats`.
"""

from torchstone.validate.base import CONSTANT_OUTPUT_NOTE, FunctionRule, Rule
from torchstone.validate.registry import (
    RULES,
    evaluate,
    known_rules,
    needs_recalibration,
    needs_remeasuring,
    needs_spin_off,
    run_rules,
    withhold,
)
from torchstone.validate.rules.answer import SPIN_OFF
from torchstone.validate.rules.peaks import sound
from torchstone.validate.rules.statistics import AGREE_WITHIN

__all__ = [
    "AGREE_WITHIN",
    "CONSTANT_OUTPUT_NOTE",
    "RULES",
    "SPIN_OFF",
    "FunctionRule",
    "Rule",
    "evaluate",
    "known_rules",
    "needs_recalibration",
    "needs_remeasuring",
    "needs_spin_off",
    "run_rules",
    "sound",
    "withhold",
]

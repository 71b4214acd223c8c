"""Rules: records in, checks out. Whether a number may be believed, and why not.

Holds: the shape of a rule, the registry that finds and runs them, and one small file per rule in
`rules/`. Touches: nothing; a rule reads records and never alters one. Imports only `records` and
`stats`.
"""

from torchstone.validate.base import CONSTANT_OUTPUT_NOTE, FunctionRule, Rule
from torchstone.validate.registry import ENTRY_POINTS, judge, known_rules, run_rules
from torchstone.validate.withhold import withhold

__all__ = [
    "CONSTANT_OUTPUT_NOTE",
    "ENTRY_POINTS",
    "FunctionRule",
    "Rule",
    "judge",
    "known_rules",
    "run_rules",
    "withhold",
]

"""What user code has said, without what it should have kept to itself."""

from __future__ import annotations

import os

from torchstone.machine.redact import redact_text, visible_variables
from torchstone.records import ArmSpec

SHORTEST_SECRET = 6
"""A shorter value stands in too many words that have nothing to do with it."""
HIDDEN_VALUE = "***"


def clean(text: str, arm: ArmSpec) -> str:
    """Without secrets, and without any value the arm was given off the allow-list.

    Cut a text only afterwards: a part of a secret cannot be told from any other word.
    """
    given = dict(arm.env)
    visible = visible_variables(given)
    hidden = {value for name, value in given.items() if name not in visible}
    for value in sorted(hidden, key=len, reverse=True):
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, HIDDEN_VALUE)
    return redact_text(text, {**os.environ, **given})

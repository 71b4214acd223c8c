"""Dropout, drop-path and layer-drop set to 0.

Two processes, or eager and compiled code, never draw the same random masks, so a model that drops
anything can not be compared with itself. Configurations come first, because some models read a
probability once, at construction; what is left in the modules is found afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MARK = "drop"
"""`dropout`, `hidden_dropout_prob`, `resid_pdrop`, `layerdrop`, `drop_path_rate`, `drop_prob`, …"""
NAMED_P = ("Drop", "StochasticDepth")
"""Modules with such names keep their probability in `p`."""


def zero_config(config: Any) -> tuple[str, ...]:
    """Set every drop probability of a configuration to 0, nested ones too; the names of those.

    None stays: it means that another field of the configuration counts.
    """
    zeroed = []
    for path, owner, name in _probabilities(config, ""):
        setattr(owner, name, 0.0)
        zeroed.append(path)
    return tuple(sorted(zeroed))


def zero_modules(model: Any) -> tuple[str, ...]:
    """Set what still drops in a model that is built to 0; the names of those."""
    zeroed = []
    for path, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if not _drops(value):
                continue
            if MARK in name.lower() or (name == "p" and _named_for_it(module)):
                setattr(module, name, 0.0)
                zeroed.append(f"{path}.{name}" if path else name)
    return tuple(sorted(zeroed))


def dropout_notes(in_config: tuple[str, ...], in_modules: tuple[str, ...]) -> tuple[str, ...]:
    """What was set to 0, for the contract."""
    notes = [
        f"dropout set to 0 before construction: {', '.join(in_config)}"
        if in_config
        else "no dropout in the configuration"
    ]
    if in_modules:
        notes.append(f"dropout set to 0 after construction: {', '.join(in_modules)}")
    return tuple(notes)


def _probabilities(config: Any, prefix: str) -> Iterator[tuple[str, Any, str]]:
    for name, value in list(vars(config).items()):
        if MARK in name.lower() and _drops(value):
            yield prefix + name, config, name
        elif hasattr(value, "to_dict") and hasattr(value, "__dict__"):
            yield from _probabilities(value, f"{prefix}{name}.")


def _drops(value: Any) -> bool:
    """A probability above 0: not a switch, and not a count such as a number of tokens."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1


def _named_for_it(module: Any) -> bool:
    return any(word in type(module).__name__ for word in NAMED_P)

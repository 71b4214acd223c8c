"""What an arm changed without saying so, besides the form and the values of its answer.

A variant declares which parts of the contract it may change. The same target under another
variant must keep the rest: modes, parameters, weights, and whether outputs carry gradients.
Another target may be another model, so there a difference is worth a remark and no more; so is
another memory format, which later ops pay for.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchstone.records import Contract, Leaf

_DECLARED_BY: Mapping[str, frozenset[str]] = {
    "training": frozenset({"training"}),
    "grad_enabled": frozenset({"grad_enabled"}),
    "autocast": frozenset({"autocast", "dtype"}),
    "parameters": frozenset({"parameters"}),
    "parameter_dtypes": frozenset({"parameters", "dtype"}),
    "weights_hash": frozenset({"parameters", "dtype"}),
    "determinism": frozenset({"determinism"}),
}
"""Field of the contract: what a variant may declare so that it may differ."""
_MODES = ("training", "grad_enabled", "autocast", "determinism")
"""What two different targets should have in common, too."""


def may_differ(field: str, changes: frozenset[str]) -> bool:
    """Whether a variant with these declared changes may change this field of the contract."""
    return bool(_DECLARED_BY.get(field, frozenset()) & changes)


def undeclared_change(base: Contract, new: Contract, changes: frozenset[str]) -> str:
    """The first difference of one target's two variants that must not be; empty if none."""
    for field in _DECLARED_BY:
        want, got = getattr(base, field), getattr(new, field)
        if want != got and not may_differ(field, changes):
            return f"{field}: expected {want}, got {got}"
    return gradients_change(base, new, changes)


def gradients_change(base: Contract, new: Contract, changes: frozenset[str]) -> str:
    """The first output that carries gradients in one of the two only."""
    found = [] if "requires_grad" in changes else _gradients(base, new)
    return found[0] if found else ""


def remarks(base: Contract, new: Contract, changes: frozenset[str]) -> list[str]:
    """What else a reader of two arms' figures should know."""
    found = [
        f"{field} differs from the baseline's: {getattr(base, field)} there, "
        f"{getattr(new, field)} here"
        for field in _MODES
        if getattr(base, field) != getattr(new, field) and not may_differ(field, changes)
    ]
    if "requires_grad" not in changes:
        found += _gradients(base, new)
    if "memory_format" not in changes:
        found += [
            f"{want.path}: {want.memory_format} in the baseline, {got.memory_format} here; "
            "what is computed from it next may pay for that"
            for want, got in _pairs(base, new)
            if want.memory_format != got.memory_format
        ]
    return found


def _gradients(base: Contract, new: Contract) -> list[str]:
    words = {True: "carries gradients", False: "carries no gradients"}
    return [
        f"{want.path}: {words[got.requires_grad]}, the baseline's {words[want.requires_grad]}"
        for want, got in _pairs(base, new)
        if want.requires_grad != got.requires_grad
    ]


def _pairs(base: Contract, new: Contract) -> list[tuple[Leaf, Leaf]]:
    """Outputs of one name; where a variant renames them there are none."""
    by_path = {leaf.path: leaf for leaf in new.outputs}
    return [(leaf, by_path[leaf.path]) for leaf in base.outputs if leaf.path in by_path]

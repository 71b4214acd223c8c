"""Does an arm's output agree with the reference?

Works on files that workers left behind, so that the reference never enters an arm's memory. The arm
passes where its error against float64 is at most a few times the baseline's own error, or than the
baseline itself moves when its numbers are nudged by one rounding. What is finite in float64 must be
finite in the arm, whatever the baseline has there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from torchstone.records import (
    LEAF_GROUPS,
    NOTHING_COMPARABLE,
    Agreement,
    ArmSpec,
    Contract,
    Leaf,
    describe_leaf,
    from_data,
)

Floats = npt.NDArray[np.float64]

# Form: leaves of an output, or of inputs, set against those that were promised.

_PLAIN_TYPES = (
    "torch.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.nn.modules.parameter.Parameter",
)


def compare_leaves(expected: Sequence[Leaf], found: Sequence[Leaf], changes: frozenset[str]) -> str:
    """The first undeclared difference in structure, in words; empty if there is none."""
    if "container" not in changes:
        known, given = {leaf.path for leaf in expected}, {leaf.path for leaf in found}
        missing = [leaf.path for leaf in expected if leaf.path not in given]
        extra = [leaf.path for leaf in found if leaf.path not in known]
        if missing:
            return f"{missing[0]}: missing" + (f", got {extra[0]} instead" if extra else "")
        if extra:
            return f"{extra[0]}: not in the baseline's output"
    elif len(expected) != len(found):
        return f"output: expected {len(expected)} tensors, got {len(found)}"
    for want, got in zip(expected, _in_order(expected, found, changes), strict=True):
        difference = _leaf_difference(want, got, changes)
        if difference:
            return difference
    return ""


def _in_order(
    expected: Sequence[Leaf], found: Sequence[Leaf], changes: frozenset[str]
) -> Sequence[Leaf]:
    """The leaves as the baseline has them: a dict's order is no part of the contract."""
    if "container" in changes:
        return found
    by_path = {leaf.path: leaf for leaf in found}
    return [by_path[leaf.path] for leaf in expected]


def _leaf_difference(want: Leaf, got: Leaf, changes: frozenset[str]) -> str:
    same_shape = want.shape == got.shape
    same_type = "dtype" in changes or _same_dtype(want, got)
    same_place = "device" in changes or want.device == got.device
    if not (same_shape and same_type and same_place):
        return f"{want.path}: expected {describe_leaf(want)}, got {describe_leaf(got)}"
    if got.kind == "torch" and got.type_name not in (*_PLAIN_TYPES, want.type_name):
        return (
            f"{want.path}: expected a plain tensor, got {got.type_name}, "
            "which may put off its work until it is read"
        )
    return ""


def _same_dtype(want: Leaf, got: Leaf) -> bool:
    if want.kind == got.kind:
        return want.dtype == got.dtype
    # A Python float, a NumPy scalar and a 0-d tensor may all be the same answer.
    return want.dtype.rstrip("0123456789") == got.dtype.rstrip("0123456789")


MULTIPLIER = 3.0
"""An arm may be this many times further from float64 than the baseline is; the allowance that
PyTorch's own accuracy check gives small differences in the order of operations."""
TOLERANCES = {
    "fp32": 1e-4,
    "tf32": 1e-2,
    "bf16": 1e-1,
    "fp16": 3e-2,
    "amp": 1e-1,
    "amp-bf16": 1e-1,
    "amp-fp16": 3e-2,
    "int8": 1.0,
    "metric": math.inf,
}
"""Relative to the reference's own size; a tenth of it is added to the baseline's error. fp32 is
PyTorch's default; the others are about ten units in the last place of the narrowest type used."""
MINIMUM_COSINE = 0.999
"""Where there is no float64 run. PyTorch's own bound on cosine similarity is 0.99."""
LARGE_SHARE = 0.5
"""An output of which more than this is NaN or infinite is hardly checked, and that is said. Our own
figure; a causal mask filled with minus infinity stays below it."""
SQUARABLE = 1e150
"""Larger numbers overflow when squared; `finfo.min`, with which masks are filled, is one."""
NOUGHT = float(np.finfo(np.float32).eps)
"""A gradient smaller than this beside the largest one, or a running statistic, of which the
baseline has not a single digit right, is 0 but for rounding: that of a bias which softmax cancels
is, and the mean of what a normalisation before it has centred. How much rounding there is depends
on the order of a sum, so its error is evaluated as a share of the largest, not of itself."""
NO_DIGIT = 1.0
"""The baseline's error as a share of the value, from which on it has no digit of it right."""
_STRENGTH = ("exact", "fp64", "eager", "none")
_REFERENCE = {"fp64": "float64", "eager": "the baseline"}


@dataclass(frozen=True)
class Output:
    """One leaf of an output, read back."""

    leaf: Leaf
    kind: str
    values: Floats | npt.NDArray[np.int64] | bytes


def read_evidence(path: Path) -> list[Output]:
    """What `measure.evidence` wrote."""
    with open(path, "rb") as file:
        heads = json.loads(file.readline())
        return [_read_leaf(head, file.read(head["bytes"])) for head in heads]


def _read_leaf(head: dict[str, object], body: bytes) -> Output:
    leaf = from_data(Leaf, head["leaf"])
    kind = str(head["kind"])
    if kind in ("f4", "f8"):
        return Output(leaf, kind, np.frombuffer(body, dtype=f"<{kind}").astype(np.float64))
    if kind == "i8":
        return Output(leaf, kind, np.frombuffer(body, dtype="<i8"))
    return Output(leaf, kind, body)


def evaluate(
    arm: ArmSpec,
    found: Sequence[Output],
    eager: Sequence[Output],
    fp64: Sequence[Output] | None,
    changes: frozenset[str],
    reason: str = "",
    moved: Mapping[str, float] | None = None,
) -> Agreement:
    """Compare one output with the baseline's and, where there is one, the float64 run.

    `moved` says for each leaf of the baseline how far one rounding moves it.
    """
    tolerance = max(TOLERANCES[name] for name in (arm.precision, *changes) if name in TOLERANCES)
    unlike = _unlike(eager, fp64) if fp64 is not None else ""
    if unlike:
        fp64, reason = None, unlike
    start = Agreement(
        "fp64" if fp64 is not None else "eager", reason, tolerance, MULTIPLIER, checked=1
    )
    mismatch = compare_leaves([o.leaf for o in eager], [o.leaf for o in found], changes)
    if mismatch:
        return replace(start, mismatch=mismatch)
    if all(output.kind == "object" for output in eager):
        return Agreement("none", NOTHING_COMPARABLE)
    if "container" not in changes:
        by_path = {output.leaf.path: output for output in found}
        found = [by_path[output.leaf.path] for output in eager]
    truths: Sequence[Output | None] = fp64 if fp64 is not None else [None] * len(eager)
    ones = [
        _judge_leaf(got, want, truth, tolerance, (moved or {}).get(want.leaf.path, 0.0))
        for got, want, truth in zip(found, eager, truths, strict=True)
    ]
    truth_of = [want if true is None else true for want, true in zip(eager, truths, strict=True)]
    whole = _over_leaves(start, _with_noughts(ones, truth_of, tolerance))
    return replace(whole, identical=_identical(found, eager))


def _identical(found: Sequence[Output], eager: Sequence[Output]) -> bool:
    """Bit for bit, in the same types."""
    return all(
        got.leaf.dtype == want.leaf.dtype
        and (
            got.values == want.values
            if isinstance(got.values, bytes) or isinstance(want.values, bytes)
            else bool(np.array_equal(got.values, want.values, equal_nan=got.kind[0] == "f"))
        )
        for got, want in zip(found, eager, strict=True)
    )


def _with_noughts(
    ones: Sequence[Agreement], truths: Sequence[Output], tolerance: float
) -> list[Agreement]:
    """Of gradients and of running statistics, those that are nothing but rounding as shares of the
    largest one."""
    found = list(ones)
    for group in LEAF_GROUPS:
        sizes = {
            i: _size(truth)
            for i, (one, truth) in enumerate(zip(ones, truths, strict=True))
            if truth.leaf.path.startswith(group) and one.method != "exact"
        }
        most = max(sizes.values(), default=0.0)
        for i, size in sizes.items():
            if size < NOUGHT * most:
                found[i] = _nought(ones[i], truths[i].leaf.path, (size or 1.0) / most, tolerance)
    return found


def _nought(one: Agreement, path: str, share: float, tolerance: float) -> Agreement:
    rmse, own = one.rmse * share, one.rmse_baseline * share
    told = replace(one, rmse=rmse, rmse_baseline=own, cosine=1.0)
    if one.method != "fp64" or one.rmse_baseline < NO_DIGIT:
        return told  # a small one that can be computed must be computed right
    return replace(told, mismatch=_too_far(path, one.method, rmse, own, 1.0, tolerance))


def _size(output: Output) -> float:
    """Root mean square of what is finite."""
    values = np.asarray(output.values, dtype=np.float64)
    finite = values[np.isfinite(values) & (np.abs(values) < SQUARABLE)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def _over_leaves(start: Agreement, ones: Sequence[Agreement]) -> Agreement:
    """The worst of each figure, and the weakest way that any number was checked."""
    worst = start
    for one in ones:
        worst = _worst(worst, one)
    ways = {one.method for one in ones}
    if ways == {"exact"}:  # whole numbers and text: nothing was rounded, no reference was needed
        return replace(worst, method="exact", reason="", tolerance=0.0, multiplier=0.0)
    said = [one.reason for one in ones if one.reason]
    more = f" (and {len(said) - 1} more of its outputs)" if len(said) > 1 else ""
    reason = "; ".join(text for text in (start.reason, *said[:1]) if text) + more
    if ways <= {"exact", "none"} and not worst.mismatch:
        return Agreement("none", reason)
    return replace(worst, method="eager" if "eager" in ways else start.method, reason=reason)


def _worst(first: Agreement, second: Agreement) -> Agreement:
    ratios = [one.error_ratio for one in (first, second) if one.error_ratio is not None]
    return replace(
        first,
        rmse=max(first.rmse, second.rmse),
        rmse_baseline=max(first.rmse_baseline, second.rmse_baseline),
        cosine=min(first.cosine, second.cosine),
        mismatch=first.mismatch or second.mismatch,
        error_ratio=max(ratios, default=None),
    )


def out_of_range(eager: Sequence[Output], fp64: Sequence[Output]) -> bool:
    """Whether the baseline itself is NaN or infinite where float64 is finite."""
    if _unlike(eager, fp64):
        return False
    pairs = ((want.values, truth.values) for want, truth in zip(eager, fp64, strict=True))
    return any(
        bool((np.isfinite(true) & ~np.isfinite(base)).any())
        for base, true in pairs
        if not isinstance(base, bytes) and not isinstance(true, bytes)
    )


def _unlike(eager: Sequence[Output], fp64: Sequence[Output]) -> str:
    """Why a float64 run is no reference for this output; empty where it is one."""
    if len(fp64) != len(eager):
        return f"the float64 run gives {len(fp64)} outputs, not {len(eager)}"
    for want, truth in zip(eager, fp64, strict=True):
        if want.leaf.shape != truth.leaf.shape:
            shapes = f"{list(truth.leaf.shape)}, not {list(want.leaf.shape)}"
            return f"{want.leaf.path}: in float64 its shape is {shapes}"
    return ""


def _judge_leaf(
    got: Output, want: Output, truth: Output | None, tolerance: float, moved: float
) -> Agreement:
    path = want.leaf.path
    exact = Agreement("exact", checked=1)
    if isinstance(got.values, bytes) or isinstance(want.values, bytes):
        if got.values == want.values or got.kind == "object":
            return exact
        return replace(exact, mismatch=f"{path}: {_short(got)} is not {_short(want)}")
    if got.values.dtype == np.int64 and want.values.dtype == np.int64:
        wrong = int((got.values != want.values).sum())
        if not wrong:
            return exact
        return replace(exact, mismatch=f"{path}: {wrong} of {want.values.size} integers differ")
    return _judge_floats(path, got.values, want.values, truth, tolerance, moved)


def _judge_floats(
    path: str,
    got: npt.NDArray[np.generic],
    want: npt.NDArray[np.generic],
    truth: Output | None,
    tolerance: float,
    moved: float,
) -> Agreement:
    found, base = got.astype(np.float64), want.astype(np.float64)
    true = None if truth is None else np.asarray(truth.values, dtype=np.float64)
    reason = "" if true is None else _no_reference(path, base, true)
    if reason:
        true = None
    aim, method = (base, "eager") if true is None else (true, "fp64")
    astray = _astray(path, found, base, aim, method)
    if astray:
        return Agreement(method, reason, mismatch=astray)
    finite = np.isfinite(aim)
    if not finite.all():
        reason = reason or _mostly_odd(path, aim, method)
        # Nothing but NaN says nothing; nor do infinities that only the baseline has.
        if not (finite if true is None else ~np.isnan(aim)).any():
            return Agreement("none", reason)
    largest = float(np.abs(aim[finite]).max(initial=0.0))
    if largest > SQUARABLE:  # all figures are relative
        found, base, aim = found / largest, base / largest, aim / largest
        moved /= largest
    both = finite & np.isfinite(base)
    own = _rmse(base[both], aim[both])
    found, aim = found[finite], aim[finite]
    scale = (float(np.sqrt(np.mean(aim**2))) if aim.size else 0.0) or 1.0
    rmse, own = _rmse(found, aim) / scale, max(own, moved) / scale
    cosine = _cosine(found, aim)
    return Agreement(
        method,
        reason,
        rmse=rmse,
        rmse_baseline=own,
        cosine=cosine,
        mismatch=_too_far(path, method, rmse, own, cosine, tolerance),
        error_ratio=rmse / own if method == "fp64" and own > 0 else None,
    )


def _too_far(
    path: str, method: str, rmse: float, own: float, cosine: float, tolerance: float
) -> str:
    if method == "fp64":
        allowed = MULTIPLIER * own + tolerance / 10
        if rmse <= allowed:
            return ""
        return f"{path}: error {rmse:.2e} against float64, allowed {allowed:.2e}"
    if rmse <= MULTIPLIER * own or (rmse <= tolerance and cosine >= MINIMUM_COSINE):
        return ""
    return f"{path}: differs from the baseline by {rmse:.2e} (relative), cosine {cosine:.4f}"


def _no_reference(path: str, base: Floats, true: Floats) -> str:
    """Why float64 is no reference for this leaf; empty where it is one."""
    gone = int((np.isfinite(base) & ~np.isfinite(true)).sum())
    if not gone:
        return ""
    return (
        f"{path}: {gone} of {base.size} values are NaN or infinite in float64 "
        "and finite in the baseline"
    )


def _astray(path: str, found: Floats, base: Floats, aim: Floats, method: str) -> str:
    """Where NaN and infinities are not those of the reference, in words; empty where they are."""
    where = _REFERENCE[method]
    gone = np.isfinite(aim) & ~np.isfinite(found)
    if gone.any():
        also = int((gone & ~np.isfinite(base)).sum())
        return (
            f"{path}: {int(gone.sum())} of {base.size} values are NaN or infinite here and finite "
            f"in {where}"
        ) + (f"; the baseline itself is not finite in {also} of them" if also else "")
    other = int((~np.isfinite(aim) & ~(_same(found, aim) | _same(found, base))).sum())
    if other:
        return (
            f"{path}: {other} of {base.size} values are NaN or infinite in {where} "
            "and something else here"
        )
    return ""


def _same(a: Floats, b: Floats) -> npt.NDArray[np.bool_]:
    return np.equal(a, b) | np.logical_and(np.isnan(a), np.isnan(b))


def _mostly_odd(path: str, aim: Floats, method: str) -> str:
    """That little of a leaf is finite; empty where enough is."""
    odd = int((~np.isfinite(aim)).sum())
    if odd <= LARGE_SHARE * aim.size:
        return ""
    return f"{path}: {odd} of {aim.size} values are NaN or infinite in {_REFERENCE[method]}"


def _rmse(a: Floats, b: Floats) -> float:
    return float(np.sqrt(np.mean((a - b) ** 2))) if a.size else 0.0


def _cosine(a: Floats, b: Floats) -> float:
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.dot(a, b)) / norms if norms else 1.0


def _short(output: Output) -> str:
    text = output.values if isinstance(output.values, bytes) else b"numbers"
    return repr(text.decode(errors="replace")[:40])


def combine(first: Agreement | None, second: Agreement, timed: bool) -> Agreement:
    """Evidence of several checks: the worst of each figure, the weakest way, the first mismatch."""
    second = replace(second, timed=second.checked if timed else 0)
    if first is None:
        return second
    strength = [_STRENGTH.index(one.method) for one in (first, second)]
    same = strength[0] == strength[1]
    weaker = not first.reason if same else strength[1] > strength[0]
    weakest = second if weaker else first
    return replace(
        _worst(first, second),
        method=weakest.method,
        reason=weakest.reason,
        checked=first.checked + second.checked,
        identical=first.identical and second.identical,
        timed=first.timed + second.timed,
    )


# What an arm changed without saying so, besides the form and the values of its answer.
#
# A variant declares which parts of the contract it may change. The same target under another
# variant must keep the rest: modes, parameters, weights, and whether outputs carry gradients.
# Another target may be another model, so there a difference is worth a remark and no more; so is
# another memory format, which later ops pay for.

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

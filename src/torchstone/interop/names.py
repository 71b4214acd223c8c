"""How the PyTorch dashboard's runner names what it runs, in its words and in ours.

Its files are named `{compiler}_{suite}_{dtype}_{mode}_{device}_{table}.csv`, such as
`inductor_no_cudagraphs_huggingface_bfloat16_inference_cuda_performance.csv`
(`test_perf_for_dashboard` in pytorch's `.ci/pytorch/test.sh`). Every translation here can be
turned round, so that a case keeps its place on the way out and back in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torchstone.interop.files import MAX_NAME
from torchstone.records import SCALES, CaseKey

UNKNOWN = "unknown"
PERFORMANCE, ACCURACY = "performance", "accuracy"
TABLES = (PERFORMANCE, ACCURACY)

THEIR_SUITES = ("torchbench-checkout", "torchbench", "huggingface", "timm_models")
"""And one of ours, with their models, under a name of its own: a longer name before its part."""
_SUITES = {"timm_models": "timm"}
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_COMPILERS = {
    "inductor_no_cudagraphs": "inductor",
    "inductor_with_cudagraphs": "inductor+cudagraphs",
    "inductor_with_cudagraphs_freezing": "inductor+cudagraphs+freezing",
    "inductor_max_autotune": "inductor+max-autotune",
    "inductor_aot_inductor": "aoti",
    "inductor_export": "export",
    "nothing": "eager",
}
_DYNAMIC = "inductor_dynamic"
"""CUDA graphs are on in it, which on a CPU means nothing."""
_OTHER_MEANING = "dynamo:"
"""Before a name of theirs that means something else in ours: its `inductor` does not say whether
CUDA graphs are on, and its `eager` captures graphs, where ours is plain eager."""
_OURS = "torchstone-"
"""Before a name of ours that means something else in theirs."""

_FULL = re.compile(
    r"(?P<head>.+)_(?P<mode>inference|training)_(?P<device>.+)_(?P<table>performance|accuracy)"
)
_UNSAFE = re.compile(r"[^A-Za-z0-9_+.@=,-]")
_MAX_STEM = 200
"""A file's name may have 255 bytes, its ending and a number among them."""
_MAX_PART = 40
"""Of each of the four free parts of a name that is too long; with mode and table, 185 at most."""
_DIGITS = 8
"""Of the hash that tells cut names apart."""
_SCALE_MARK = "@"


@dataclass(frozen=True)
class Naming:
    """What a file's name says, in their words; empty where it says nothing."""

    compiler: str = ""
    suite: str = ""
    dtype: str = ""
    mode: str = ""
    device: str = ""
    table: str = ""

    @property
    def whole(self) -> bool:
        """Whether the name follows their pattern."""
        return bool(self.dtype and self.device and self.table)

    @property
    def stem(self) -> str:
        """The name that says it all, without its ending."""
        parts = (self.compiler, self.suite, self.dtype, self.mode, self.device, self.table)
        whole = _clean("_".join(parts))
        if len(whole) <= _MAX_STEM:
            return whole
        # Each part by itself: the end says which table it is, and both tables name one suite.
        compiler, suite, dtype, device = (
            _cut(part, _MAX_PART) for part in (self.compiler, self.suite, self.dtype, self.device)
        )
        return _clean("_".join((compiler, suite, dtype, self.mode, device, self.table)))


def read_stem(stem: str) -> Naming:
    """What a file name without its ending says."""
    match = _FULL.fullmatch(stem) if len(stem) <= MAX_NAME else None
    if match is None:
        return _read_other(stem)
    rest, _, dtype = match["head"].rpartition("_")
    compiler, suite = _split_suite(rest)
    if not compiler or not dtype:
        return _read_other(stem)
    return Naming(compiler, suite, dtype, match["mode"], match["device"], match["table"])


def _split_suite(text: str) -> tuple[str, str]:
    for suite in THEIR_SUITES:
        if text.endswith("_" + suite):
            return text.removesuffix("_" + suite), suite
    for compiler in sorted((*_COMPILERS, _DYNAMIC), key=len, reverse=True):
        if text.startswith(compiler + "_"):
            return compiler, text.removeprefix(compiler + "_")
    compiler, _, suite = text.rpartition("_")
    return compiler, suite


def _read_other(stem: str) -> Naming:
    """A name of another pattern: `speedup_inductor`, `training_timm_models`, or the user's own."""
    if len(stem) > MAX_NAME:
        return Naming()
    named = Naming()
    for prefix, table in (("speedup_", PERFORMANCE), ("accuracy_", ACCURACY)):
        if stem.startswith(prefix):
            named, stem = replace(named, table=table), stem.removeprefix(prefix)
    for suite in THEIR_SUITES:
        if suite in stem:
            named, stem = replace(named, suite=suite), stem.replace(suite, "", 1)
    for mode in ("inference", "training"):
        if mode in stem:
            named, stem = replace(named, mode=mode), stem.replace(mode, "", 1)
    for table in TABLES:
        if stem.endswith("_" + table):
            named, stem = replace(named, table=table), stem.removesuffix("_" + table)
    return replace(named, compiler="_".join(part for part in stem.split("_") if part))


def key_of(named: Naming, model: str, dev: str = "", tag: str = "") -> CaseKey:
    """The case that a row of such a file speaks of."""
    # `cuda_a10g` says more than the column's `cuda`; `cuda-0` is how a name holds `cuda:0`.
    device = dev if dev and safe_stem(dev) == named.device else named.device or dev or UNKNOWN
    variant = variant_of(named.compiler or UNKNOWN, device)
    name, at, scale = model.rpartition(_SCALE_MARK)
    if not at or not name or scale not in SCALES:
        name, scale = model, "full" if named.suite in THEIR_SUITES else ""
    return CaseKey(
        suite=_SUITES.get(named.suite, named.suite) or UNKNOWN,
        model=name,
        scale=scale,
        mode=named.mode or UNKNOWN,
        precision=_DTYPES.get(named.dtype, named.dtype) or UNKNOWN,
        variant=f"{variant}:{tag}" if tag else variant,
        device=device,
    )


def naming_of(key: CaseKey, table: str) -> Naming:
    """The file in which the runner would write of this case."""
    return Naming(
        compiler=compiler_of(key.variant, key.device),
        suite=_back(_SUITES, key.suite),
        dtype=_back(_DTYPES, key.precision),
        mode=key.mode,
        device=safe_stem(key.device),
        table=table,
    )


def their_model(key: CaseKey) -> str:
    """The model's name; a model that was made small never goes by the name of the large one."""
    return f"{key.model}{_SCALE_MARK}small" if key.scale == "small" else key.model


def variant_of(compiler: str, device: str) -> str:
    """Their compiler in our words; a name that we have no word for stays as it is."""
    known = _compilers(device)
    if compiler in known:
        return known[compiler]
    if compiler in known.values():
        return _OTHER_MEANING + compiler
    name = compiler.removeprefix(_OURS)
    return name if name in known else compiler


def compiler_of(variant: str, device: str) -> str:
    """Our variant in their words; a variant that they do not have keeps its name."""
    known = _compilers(device)
    if variant in known:
        return _OURS + variant
    name = variant.removeprefix(_OTHER_MEANING)
    return name if name != variant and name in known.values() else _back(known, variant)


def _compilers(device: str) -> Mapping[str, str]:
    dynamic = "inductor+dynamic" if device.startswith("cpu") else "inductor+cudagraphs+dynamic"
    return {**_COMPILERS, _DYNAMIC: dynamic}


def _back(table: Mapping[str, str], ours: str) -> str:
    return next((theirs for theirs, name in table.items() if name == ours), ours)


def safe_stem(text: str) -> str:
    """A file name without its ending that leads to no other folder and needs no quoting."""
    clean = _clean(text)
    if len(clean) <= _MAX_STEM:
        return clean
    named = read_stem(clean)
    return named.stem if named.whole else _cut(clean, _MAX_STEM)


def _clean(text: str) -> str:
    return _UNSAFE.sub("-", text).lstrip(".-") or UNKNOWN


def _cut(text: str, most: int) -> str:
    """The beginning, and a hash of the whole where something is left out."""
    if len(text) <= most:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{text[: most - 1 - _DIGITS]}-{digest}"

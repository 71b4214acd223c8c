"""Rows of the runner's tables: those that were read, and cases of ours by its definitions.

What its columns cannot say of a case of ours stands in columns of our own behind them, so that
nothing is lost on the way out and back in.

How the PyTorch dashboard's runner names what it runs, in its words and in ours.

Its files are named `{compiler}_{suite}_{dtype}_{mode}_{device}_{table}.csv`, such as
`inductor_no_cudagraphs_huggingface_bfloat16_inference_cuda_performance.csv`
(`test_perf_for_dashboard` in pytorch's `.ci/pytorch/test.sh`). Every translation here can be
turned round, so that a case keeps its place on the way out and back in.
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any, NamedTuple

from torchstone.interop.base import Medians
from torchstone.interop.files import MAX_NAME, is_text, number, positive
from torchstone.records import (
    SCALES,
    CaseKey,
    CaseMetrics,
    ForeignMetrics,
    Level,
    Measurement,
    Outcome,
    RecordError,
    Result,
    UsageError,
    from_data,
    to_data,
)

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


DEFINITION = "pytorch-dynamo"
"""The PyTorch dashboard's runner (`benchmarks/dynamo`): its columns mean what it means by them."""
CSV_FORMAT, HUD_FORMAT = "dynamo-csv", "hud-v3"


@dataclass(frozen=True)
class Row:
    """A row ready to be written: the file it belongs to, what that file's name says, its cells."""

    stem: str
    named: Naming
    columns: tuple[str, ...]
    cells: tuple[str, ...]

    @property
    def by_column(self) -> Mapping[str, str]:
        """The cells that there are, by column."""
        return dict(zip(self.columns, self.cells, strict=False))


def foreign_rows(case: CaseMetrics) -> list[Row]:
    """The rows of a case that was read from the runner's files, as they were."""
    known = sorted((one for one in case.foreign if one.definition == DEFINITION), key=_kind)
    rows = []
    for (kind, table), group in groupby(known, key=_kind):
        if kind == HUD_FORMAT:
            rows.append(_row_of_records(case, table, list(group)))
        else:
            rows += [_row_of_line(case, one) for one in group]
    return rows


def _kind(one: ForeignMetrics) -> tuple[str, str]:
    return one.format, one.table


def _row_of_line(case: CaseMetrics, one: ForeignMetrics) -> Row:
    stem = stem_of(one.source)
    named = read_stem(stem)
    return Row(safe_stem(stem), _completed(named, case, one.table), one.columns, one.cells)


def _row_of_records(case: CaseMetrics, table: str, group: Sequence[ForeignMetrics]) -> Row:
    """JSON records as the row that the runner wrote beside them."""
    context = context_of(group[0])
    extra = member(context, "benchmark", "extra_info")
    named = _completed(read_stem(stem_of(text_of(extra.get("output")))), case, table)
    cells = {
        "dev": text_of(extra.get("device")) or case.key.device,
        "name": text_of(member(context, "model").get("name")),
        "batch_size": text_of(extra.get("batch_size")),
    }
    for one in group:
        cells.update({c: plain(text) for c, text in zip(one.columns, one.cells, strict=False)})
    cells.update({k: text_of(v) for k, v in extra.items() if k.startswith("torchstone_")})
    return Row(named.stem, named, tuple(cells), tuple(cells.values()))


def _completed(named: Naming, case: CaseMetrics, table: str) -> Naming:
    """What the file's name says, or what the case's key says where the name is of no pattern."""
    return named if named.whole else naming_of(case.key, table)


def context_of(one: ForeignMetrics) -> dict[str, Any]:
    """What a JSON record says beside its metric."""
    try:
        context = json.loads(one.context)
    except (ValueError, RecursionError):
        context = None
    if not isinstance(context, dict):
        raise UsageError(f"What was stored of {one.source}, line {one.line}, is damaged.")
    return context


def stem_of(path: str) -> str:
    """The last part of a path, without its ending."""
    name = path.replace("\\", "/").rpartition("/")[2]
    for ending in (".csv", ".json", ".jsonl"):
        name = name.removesuffix(ending)
    return name


def member(record: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at a path into a JSON record; an empty one where there is none."""
    value: Any = record
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str:
    """A JSON value as the text of a cell."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if is_text(text) else json.dumps(text)


def metric_text(metric: Mapping[str, Any]) -> str:
    """A metric as a cell, so that `metric_of` gives back the same.

    A single number is written as it is, a status as its word; all else as the JSON object.
    """
    rest = {name: value for name, value in metric.items() if name != "name"}
    match rest:
        case {"benchmark_values": [int() | float() as value]} if len(rest) == 1:
            if not isinstance(value, bool):
                return json.dumps(value)
        case {"extra_info": {"benchmark_values": [str() as word]} as extra} if (
            len(rest) == len(extra) == 1 and is_text(word) and _decoded(word) is None
        ):
            return word
    return json.dumps(rest)


def metric_of(name: str, text: str) -> dict[str, Any]:
    """The metric that `metric_text` wrote."""
    value = _decoded(text)
    if isinstance(value, dict):
        return {"name": name, **value}
    if value is None:
        return {"name": name, "extra_info": {"benchmark_values": [text]}}
    return {"name": name, "benchmark_values": [value]}


def plain(text: str) -> str:
    """A metric's cell as the dashboard reads it: the mean where there are several values."""
    value = _decoded(text)
    if not isinstance(value, dict):
        return text
    said = member(value, "extra_info").get("benchmark_values", [])
    values = value.get("benchmark_values", said)
    values = values if isinstance(values, list) else [values]
    numbers = [number(text_of(one)) for one in values]
    known = [one for one in numbers if one is not None]
    if len(values) > 1 and len(known) == len(values):
        return repr(_mean(known))
    return text_of(values[0]) if len(values) == 1 else ""


def _mean(values: Sequence[float]) -> float:
    """NaN of both infinities; numbers whose sum is too large are divided first."""
    try:
        return statistics.fmean(values)
    except (OverflowError, ValueError):
        return sum(value / len(values) for value in values)


def _decoded(text: str) -> Any:
    """The JSON value of a text: a number or an object. None: it is a word."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if value is not None else {}


# How a case ended: the runner's words, and our outcomes.


PASSING = ("pass", "pass_due_to_skip", "eager_variation")
"""What the dashboard counts as passing."""
SKIPPED = "pass_due_to_skip"
_REASON = 200
"""Characters of a cell that a reason repeats; the cell itself is kept whole."""
NOT_RUN = "not_run"
"""Ours: the runner has no word for a case that was planned and never started."""

_OUTCOMES = {
    **dict.fromkeys(PASSING, Outcome.OK),
    "fail_accuracy": Outcome.WRONG_ANSWER,
    "not_bitwise_equivalent": Outcome.WRONG_ANSWER,
    "eager_two_runs_differ": Outcome.NONDETERMINISTIC,
    "timeout": Outcome.TIMEOUT,
    "OOM": Outcome.OOM,
    "eager_1st_run_OOM": Outcome.OOM,
    "eager_2nd_run_OOM": Outcome.OOM,
    NOT_RUN: Outcome.NOT_RUN,
}
_FAILURES = (
    "fail_to_run",
    "model_fail_to_load",
    "eager_fail_to_run",
    "eager_1st_run_fail",
    "eager_2nd_run_fail",
    "warmup_failed",
    "infra_error",
)
KNOWN = frozenset((*_OUTCOMES, *_FAILURES))

_WORDS = {
    Outcome.OK: "pass",
    Outcome.WRONG_ANSWER: "fail_accuracy",
    Outcome.NONDETERMINISTIC: "eager_two_runs_differ",
    Outcome.ERROR: "fail_to_run",
    # The runner leaves no row of a process that died; this is its word for a run that failed.
    Outcome.CRASH: "fail_to_run",
    Outcome.OOM: "OOM",
    Outcome.TIMEOUT: "timeout",
    # Its word for a model that refuses the mode or device (`NotImplementedError`).
    Outcome.NOT_SUPPORTED: "model_fail_to_load",
    Outcome.NOT_RUN: NOT_RUN,
}
_BASELINE_WORDS = {
    Outcome.ERROR: "eager_1st_run_fail",
    Outcome.CRASH: "eager_1st_run_fail",
    Outcome.OOM: "eager_1st_run_OOM",
}


class Ending(NamedTuple):
    """How a case ended, why, and which arm it was."""

    outcome: Outcome
    reason: str = ""
    failed_arm: str = ""


def status_of(case: CaseMetrics) -> str:
    """The runner's word for how a case of ours ended."""
    baseline_failed = case.failed_arm != "" and case.failed_arm != case.key.variant
    words = {**_WORDS, **_BASELINE_WORDS} if baseline_failed else _WORDS
    return words[case.outcome]


def evaluate(
    status: str | None,
    speedup: str | None,
    seen: Collection[str],
    expected: Collection[str],
    variant: str,
) -> Ending:
    """How a case ended by its rows.

    `status` is the cell of the accuracy table and `speedup` that of the performance table. `seen`
    are the tables with a row of this case, `expected` those with a row of any case like it: a row
    that is missing from one of them is a failure, because the runner leaves none when a process
    dies.
    """
    if ACCURACY in seen:
        outcome = _OUTCOMES.get(status or "", Outcome.ERROR)  # one that is not known is an error
        if outcome is not Outcome.OK:
            arm = "eager" if (status or "").startswith("eager_") else variant
            return Ending(outcome, (status or "the accuracy cell is empty")[:_REASON], arm)
        if status == SKIPPED:
            return Ending(Outcome.OK, f"{SKIPPED}: the answer was not checked")
    elif ACCURACY in expected:
        return Ending(Outcome.ERROR, "no accuracy row: its process may have died", variant)
    if PERFORMANCE in seen and positive(speedup) is None:
        shown = (speedup or "empty")[:_REASON]
        return Ending(Outcome.ERROR, f"performance failed: speedup {shown}", variant)
    if PERFORMANCE in expected and PERFORMANCE not in seen:
        return Ending(Outcome.ERROR, "no performance row: its process may have died", variant)
    return Ending(Outcome.OK, "" if status in (None, "pass") else str(status))


FIRST_COLUMNS = ("dev", "name", "batch_size")
SPEED_COLUMNS = ("speedup", "abs_latency")
COST_COLUMNS = (
    "compilation_latency",
    "compression_ratio",
    "eager_peak_mem",
    "dynamo_peak_mem",
    "unique_graphs",
    "graph_breaks",
)
CASE, OUTCOME = "torchstone_case", "torchstone_outcome"
FAILED_ARM, REASON = "torchstone_failed_arm", "torchstone_reason"
OWN_COLUMNS = (CASE, OUTCOME, FAILED_ARM, REASON)

WARM_UP_CALLS = 5
"""The runner's compile time is five compiled calls, the first one included, less five eager ones
(`warmup` in its `common.py`)."""
_GIGABYTE = 1e9
_MOST_THREADS = 1_000_000


def medians_of(result: Result, case: CaseMetrics) -> tuple[float, float] | None:
    """The medians of all samples of the baseline and of the case's arm, in nanoseconds a call."""
    wanted = (case.key.variant, case.key.mode, case.key.precision)
    others = result.arms[1:]
    named = [m for m in others if (m.arm.variant, m.arm.mode, m.arm.precision) == wanted]
    found = named or others
    if not result.arms or len(found) != 1:
        return None
    base, new = _median(result.arms[0]), _median(found[0])
    return None if base is None or new is None else (base, new)


def _median(measurement: Measurement) -> float | None:
    samples = [wall for turn in measurement.turns for wall in turn.wall_ns]
    return statistics.median(samples) / measurement.loops if samples else None


def own_rows(case: CaseMetrics, medians: Medians | None) -> tuple[Row, Row]:
    """The performance row and the accuracy row; every case has both, however it ended."""
    cells = {**performance_cells(case, medians), **_own_cells(case)}
    answer = {**_first_cells(case), ACCURACY: status_of(case), **_own_cells(case)}
    return (
        _row(naming_of(case.key, PERFORMANCE), cells),
        _row(naming_of(case.key, ACCURACY), answer),
    )


def _row(named: Naming, cells: Mapping[str, str]) -> Row:
    return Row(named.stem, named, tuple(cells), tuple(cells.values()))


def _first_cells(case: CaseMetrics) -> dict[str, str]:
    """The runner writes 0 for the batch size of a failure. That of a success is not ours to say."""
    batch = "" if case.outcome is Outcome.OK else "0"
    return dict(zip(FIRST_COLUMNS, (case.key.device, their_model(case.key), batch), strict=True))


def performance_cells(case: CaseMetrics, medians: Medians | None) -> dict[str, str]:
    """What the runner would write; empty where it cannot be told, 0 for a failure."""
    cells = _first_cells(case)
    if case.outcome is not Outcome.OK:
        return {
            **cells,
            **dict.fromkeys(SPEED_COLUMNS, "0.0"),
            **dict.fromkeys(COST_COLUMNS, "0"),
        }
    middle = believed_medians(case, medians)
    if middle is None:
        cells.update(dict.fromkeys(SPEED_COLUMNS, ""))
    else:
        base, new = middle
        cells.update(speedup=repr(base / new), abs_latency=repr(new / 1e6))
    costs = (
        _compile_seconds(case.compile_cold_ns, middle),
        case.memory_ratio,
        _gigabytes(case.base_tensor_bytes),
        _gigabytes(case.new_tensor_bytes),
        case.graphs,
        case.graph_breaks,
    )
    texts = ("" if cost is None else repr(cost) for cost in costs)
    return {**cells, **dict(zip(COST_COLUMNS, texts, strict=True))}


def believed_medians(case: CaseMetrics, medians: Medians | None) -> tuple[float, float] | None:
    """The medians of a case whose number stands; a check that fails withholds it here too."""
    if case.worst_check is Level.FAIL or medians is None:
        return None
    middle = medians(case)
    return middle if middle is not None and min(middle) > 0 else None


def _compile_seconds(cold_ns: int | None, middle: tuple[float, float] | None) -> float | None:
    if cold_ns is None or middle is None:
        return None
    base, new = middle
    return (cold_ns + WARM_UP_CALLS * (new - base)) / 1e9


def _gigabytes(size: int | None) -> float | None:
    return None if size is None else size / _GIGABYTE


def _own_cells(case: CaseMetrics) -> dict[str, str]:
    key = json.dumps(to_data(case.key), separators=(",", ":"))
    values = (key, case.outcome.value, case.failed_arm, case.reason)
    return dict(zip(OWN_COLUMNS, values, strict=True))


def read_own_key(cells: Mapping[str, str]) -> CaseKey | None:
    """The case that a row of ours speaks of; None where it is not of ours."""
    try:
        key = from_data(CaseKey, json.loads(cells[CASE]))
    except (KeyError, ValueError, RecursionError, RecordError):
        return None
    texts = (getattr(key, one.name) for one in fields(CaseKey) if one.name != "threads")
    sound = all(len(name) <= MAX_NAME and is_text(name) for name in texts)
    return key if sound and key.model and 0 <= key.threads <= _MOST_THREADS else None


def read_own_ending(cells: Mapping[str, str]) -> Ending | None:
    """How it ended, in our own words; None where the row is not of ours."""
    try:
        outcome = Outcome(cells[OUTCOME])
    except (KeyError, ValueError):
        return None
    return Ending(outcome, cells.get(REASON, ""), cells.get(FAILED_ARM, ""))

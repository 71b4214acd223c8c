"""The evidence behind a figure: samples, checks, contract, environment, compiler, roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from torchstone.records import (
    Agreement,
    Calibration,
    Check,
    Comparison,
    Contract,
    Environment,
    Leaf,
    Measurement,
    Result,
    UsageError,
    describe_leaf,
)
from torchstone.records.format import count, format_bytes, format_percent
from torchstone.show.cells import (
    bytes_cell,
    command_line,
    cut,
    level_cell,
    number_cell,
    outcome_word,
    seconds_cell,
    speedup_words,
    text_cell,
    verdict_cell,
    when,
)
from torchstone.show.charts import Strip
from torchstone.show.evidence import doubt_text
from torchstone.show.page import (
    Cell,
    Code,
    Column,
    Facts,
    Field,
    Group,
    Link,
    Notice,
    Page,
    Picture,
    Section,
    Table,
    ends,
    field,
    hidden,
    make_table,
)
from torchstone.show.rows import Figures, against_first, machine, speedup_interval, what
from torchstone.show.table import sanitise
from torchstone.web.query import Query
from torchstone.web.sources import DataAccess
from torchstone.web.views.parts import QUOTIENT, arms_looked_at
from torchstone.web.views.profiles import ledger_sections, profile_sections

MOST_LEAVES = 200
CHECKS: tuple[Field[Check], ...] = (
    field("level", "Level", lambda c: level_cell(c.level)),
    field("rule", "Rule", lambda c: text_cell(c.rule)),
    field("message", "What it says", lambda c: text_cell(c.message, longest=400)),
    field("arms", "Arms", lambda c: text_cell(", ".join(c.arms))),
    field("figures", "Figures", lambda c: text_cell(_figures(c))),
)
LEAVES = (
    Column("arm", "Arm"),
    Column("side", "Side"),
    Column("path", "Path"),
    Column("what", "What"),
    Column("memory_format", "Memory format"),
    Column("requires_grad", "Requires grad"),
)


def evidence(source: DataAccess, result: Result, variant: str = "") -> tuple[Section, ...]:
    """Everything that a result carries, the weightiest first.

    A result may hold several variants beside their baseline. Where the page is about one of them,
    `variant`, so are the looks at its steps and the commands for more.
    """
    known = source.figures(result)
    looked_at = arms_looked_at(result, variant)
    return (
        *_thinned(result),
        _arms(result, known),
        *_doubts(result),
        *_failures(result),
        _samples(source.strips(result)),
        checks_table(result.checks),
        *_compiler(result),
        *_roofline(source, result),
        *profile_sections(source, result, looked_at),
        *ledger_sections(source, looked_at),
        Group("Contract", tuple(_contract(result)), folded=True),
        Group("Environment", tuple(_environment(result)), folded=True),
        _method(result),
    )


def _thinned(result: Result) -> tuple[Section, ...]:
    if result.pruned is None:
        return ()
    return (
        Notice(
            f"The {result.pruned.samples:,} raw samples of this result were removed to save space "
            f"on {when(result.pruned.created)}; its figures were derived before.",
        ),
    )


class _Arm(NamedTuple):
    """An arm, its times, and its comparison with the baseline."""

    measured: Measurement
    found: Figures | None
    comparison: Comparison | None

    def of(self, path: str) -> Any:
        """Something of what was measured, timed or compared; None where a part is missing."""
        value: Any = self
        for name in path.split("."):
            value = getattr(value, name, None)
        return value

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the speed-up."""
        return speedup_interval(self.comparison) if self.comparison else None


def _arms(result: Result, known: Sequence[Figures | None]) -> Table:
    arms = [
        _Arm(measured, found, against_first(result, measured.arm.name))
        for measured, found in zip(result.arms, known, strict=True)
    ]
    note = QUOTIENT if len(arms) > 1 else ""
    return make_table("arms", "Arms", _arm_fields(), arms, note=note)


def _arm_fields() -> tuple[Field[_Arm], ...]:
    def seconds(key: str, title: str, path: str, scale: float = 1.0, **rest: Any) -> Field[_Arm]:
        def cell(arm: _Arm) -> Cell:
            value = arm.of(path)
            return seconds_cell(None if value is None else value / scale)

        return field(key, title, cell, True, "s", **rest)

    def memory(name: str, title: str) -> Field[_Arm]:
        def cell(arm: _Arm) -> Cell:
            return bytes_cell(arm.of(f"measured.memory.{name}"))

        return field(name, title, cell, True, "bytes", group="Memory")

    def number(
        key: str, title: str, value: Callable[[_Arm], int | None], **rest: Any
    ) -> Field[_Arm]:
        return field(key, title, lambda arm: number_cell(value(arm)), True, **rest)

    def compared(name: str, title: str, unit: str = "") -> Field[_Arm]:
        return hidden(name, title, lambda arm: arm.of(f"comparison.{name}"), unit=unit)

    fastest = "The fastest steps, with what they may be off by"
    return (
        field("arm", "Arm", lambda a: text_cell(a.measured.arm.name)),
        field("outcome", "Outcome", _outcome),
        seconds("floor", "Floor", "found.floor.value", help=fastest),
        seconds("typical", "Typical", "found.typical.value"),
        field("speedup", "Speed-up", _speedup, True, "×"),
        field("verdict", "Verdict", lambda a: verdict_cell(a.of("comparison.verdict"))),
        seconds("compile_cold", "Cold", "measured.compile.cold_ns", 1e9, group="Compile"),
        seconds("compile_warm", "Warm", "measured.compile.warm_ns", 1e9, group="Compile"),
        memory("tensor_peak_bytes", "Tensors"),
        memory("peak_bytes", "Process"),
        hidden(
            "overhead_bytes", "Beyond tensors", lambda a: a.of("measured.memory.overhead_bytes")
        ),
        number(
            "graph_breaks", "Breaks", lambda a: a.of("measured.graphs.breaks"), help="Of graphs"
        ),
        number("recompiles", "Recompiles", _recompiles),
        hidden("processes", "Processes", lambda a: a.of("found.processes")),
        field("samples", "Samples", _samples_cell, True),
        field("agreement", "Answer checked", _agreed),
        *ends("speedup", "Speed-up", lambda a: a.interval),
        compared("threshold", "Noise limit"),
        compared("smallest_detectable", "Smallest detectable difference"),
        compared("deciding_budget_s", "Budget that would decide", "s"),
    )


def _outcome(arm: _Arm) -> Cell:
    return outcome_word(arm.measured.outcome, arm.measured.detail.message)


def _samples_cell(arm: _Arm) -> Cell:
    if arm.found is None:
        return Cell()
    cell = number_cell(len(arm.found.samples))
    return cell._replace(detail=f"{count(arm.found.processes, 'process', 'processes')}")


def _speedup(arm: _Arm) -> Cell:
    if arm.comparison is None:
        return Cell()
    value, low_high = speedup_words(arm.comparison.speedup, arm.interval)
    return Cell(arm.comparison.speedup, value, detail=low_high)


def _recompiles(arm: _Arm) -> int | None:
    graphs = arm.measured.graphs
    return graphs.recompiles + graphs.late_recompiles if graphs else None


def _agreed(arm: _Arm) -> Cell:
    agreed = arm.measured.agreement
    return text_cell(f"{agreed.method}, {agreed.checked} outputs" if agreed else "")


def _doubts(result: Result) -> Iterable[Section]:
    """What a verdict leaves open, why, and the budget that would probably decide."""
    for comparison in result.comparisons:
        text = doubt_text(comparison, result)
        if text:
            name, verdict = sanitise(comparison.new), comparison.verdict.value
            yield Notice(f"{name} {verdict}: {sanitise(text)}")


def _failures(result: Result) -> Iterable[Section]:
    for number, measured in enumerate(result.arms):
        detail = measured.detail
        if not detail.message:
            continue
        where = f" while {sanitise(detail.phase)}" if detail.phase else ""
        said = f"{sanitise(measured.arm.name)}{where}: {sanitise(detail.message)}"
        yield Notice(said, "warn", sanitise(detail.remedy))
        if detail.stderr:
            text = "\n".join(sanitise(line) for line in detail.stderr)
            left = f"Left behind by {sanitise(measured.arm.name)}"
            yield Group(left, (Code(f"stderr-{number}", "", text, copy=False),))


def _samples(strips: tuple[Strip, ...]) -> Picture:
    note = "Every timed sample, by process and turn, in the order they were taken."
    return Picture("samples", "Raw samples", strips, note if strips else "", "No sample is stored.")


def checks_table(checks: Sequence[Check]) -> Table:
    """What the rules found, the worst first."""
    order = {"fail": 0, "warn": 1, "note": 2, "ok": 3}
    listed = sorted(checks, key=lambda check: order[check.level.value])
    return make_table("checks", "Checks", CHECKS, listed, empty="No rule was applied.")


def _figures(check: Check) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in check.figures.items())


def _compiler(result: Result) -> Iterable[Section]:
    rows = tuple(
        (text_cell(measured.arm.name), text_cell(reason, longest=300))
        for measured in result.arms
        if measured.graphs
        for reason in measured.graphs.break_reasons
    )
    if rows:
        columns = (Column("arm", "Arm"), Column("reason", "Reason"))
        yield Table("graph-breaks", "Graph breaks", columns, rows, total=len(rows))


def _roofline(source: DataAccess, result: Result) -> Iterable[Section]:
    """The baseline under the peaks of its machine; a sentence where something is missing."""
    from torchstone.explain.roofline import roofline

    try:
        found = roofline(result, _calibration(source, result))
    except UsageError as error:
        yield Group("Roofline", (Notice(sanitise(error.message), remedy=error.remedy),))
        return
    yield Picture("roofline", "Roofline", found, sanitise(found.sentence))


def _calibration(source: DataAccess, result: Result) -> Calibration | None:
    if result.calibration is not None:
        return result.calibration
    base = result.arms[0] if result.arms else None
    if base is None or base.environment is None:
        return None
    return source.store.calibration(base.environment.machine_id, base.arm.device.split(":")[0])


def _contract(result: Result) -> Iterable[Section]:
    rows = []
    for measured in result.arms:
        if measured.contract is None:
            continue
        yield _contract_facts(measured.arm.name, measured.contract, measured.agreement)
        for side, leaves in (
            ("input", measured.contract.inputs),
            ("output", measured.contract.outputs),
        ):
            rows += [_leaf(measured.arm.name, side, leaf) for leaf in leaves]
    cut = tuple(rows[:MOST_LEAVES])
    left = len(rows) - len(cut)
    note = f"{left:,} more are left out." if left else ""
    yield Table("contract", "Inputs and outputs", LEAVES, cut, note, "No contract is stored.")


def _contract_facts(name: str, contract: Contract, agreed: Agreement | None) -> Facts:
    dtypes = ", ".join(f"{number:,} {name}" for name, number in contract.parameter_dtypes.items())
    flags = ", ".join(
        f"{name} {'on' if flag else 'off'}" for name, flag in contract.determinism.items()
    )
    items = [
        ("Parameters", number_cell(contract.parameters)),
        ("Of dtype", text_cell(dtypes, longest=200)),
        ("Training mode", Cell(contract.training, "yes" if contract.training else "no")),
        ("Gradients", Cell(contract.grad_enabled, "on" if contract.grad_enabled else "off")),
        ("Autocast", text_cell(contract.autocast or "off")),
        ("Seed", number_cell(contract.seed)),
        ("Weights", text_cell(contract.weights_hash[:16])),
        ("Inputs", text_cell(contract.inputs_hash[:16])),
        ("Determinism", text_cell(flags, longest=300)),
        ("Notes", text_cell("; ".join(contract.notes), longest=400)),
        ("Answer", text_cell(_agreement_words(agreed) if agreed else "", longest=400)),
    ]
    kept = tuple((label, cell) for label, cell in items if cell.text)
    return Facts(f"contract-{sanitise(name)}", sanitise(name), kept)


def _agreement_words(agreed: Agreement) -> str:
    """What the answer was held to, and how far it was off."""
    parts = [f"checked by {agreed.method}", agreed.reason]
    if agreed.method not in ("exact", "none"):
        bound = f"tolerance {agreed.tolerance:g}"
        if agreed.multiplier:
            bound += f", at most {agreed.multiplier:g} times the baseline's own error"
        parts += [bound, f"error {agreed.rmse:.3g}", f"cosine {agreed.cosine:.6g}"]
        if agreed.method == "fp64":
            parts.append(f"the baseline's {agreed.rmse_baseline:.3g}")
    return "; ".join(part for part in (*parts, agreed.mismatch) if part)


def _leaf(arm: str, side: str, leaf: Leaf) -> tuple[Cell, ...]:
    return (
        text_cell(arm),
        Cell(side, side),
        text_cell(leaf.path),
        text_cell(describe_leaf(leaf)),
        text_cell(leaf.memory_format),
        Cell(leaf.requires_grad, "yes" if leaf.requires_grad else "no"),
    )


def _environment(result: Result) -> Iterable[Section]:
    seen: set[str] = set()
    for measured in result.arms:
        known = measured.environment
        if known is None:
            continue
        items = tuple((name, text_cell(value, longest=200)) for name, value in _facts(known))
        if repr(items) in seen:
            continue
        seen.add(repr(items))
        title = sanitise(measured.arm.name) if len(result.arms) > 1 else ""
        yield Facts(f"environment-{sanitise(measured.arm.name)}", title, items)
    if not seen:
        yield Notice("No environment is stored.")


def _facts(known: Environment) -> list[tuple[str, str]]:
    found = [("machine", known.machine_id)]
    for group, values in (
        ("processor", known.cpu),
        ("system", known.os),
        ("python", known.python),
        ("torch", known.torch),
        ("threads", known.threads),
        ("variable", known.variables),
        ("package", known.packages),
    ):
        found += [(f"{group}: {name}", str(value)) for name, value in values.items()]
    found += [(f"cache: {name}", format_bytes(size)) for name, size in known.caches.items()]
    found.append(("memory", format_bytes(known.memory_bytes) if known.memory_bytes else ""))
    found.append(("allocator", known.allocator))
    if known.git is not None:
        found.append(("commit", known.git.commit + (" (changed)" if known.git.dirty else "")))
    return [(sanitise(name), value) for name, value in found if value]


def _method(result: Result) -> Section:
    method = result.method
    looks = ", ".join(str(look) for look in method.looks)
    items = [
        ("Stopped by", text_cell(method.stopped_by)),
        ("Processes an arm", number_cell(method.replicates)),
        ("Looks", text_cell(looks)),
        ("Wanted precision", Cell(method.within, format_percent(method.within))),
        ("Called the same within", Cell(method.margin, format_percent(method.margin))),
        ("Budget", seconds_cell(method.budget_s)),
        ("Took", seconds_cell(method.elapsed_s)),
        ("Estimator", text_cell(method.estimator)),
        ("Seed", number_cell(method.seed)),
        ("Definition", number_cell(method.definition)),
        ("Torchstone", text_cell(result.version)),
    ]
    kept = tuple((name, cell) for name, cell in items if cell.text)
    return Group("Method", (Facts("method", "", kept),), folded=True)


# One stored result, whole.


def result(source: DataAccess, query: Query, ident: str) -> Page:
    """A result with its samples and everything that was found about it."""
    found = source.result(ident)
    items = (
        ("Id", text_cell(found.id)),
        ("Made", Cell(found.created, when(found.created))),
        ("Kind", text_cell(found.kind)),
        ("Machine", text_cell(" · ".join(machine(found)), longest=160)),
        ("Origin", text_cell(found.origin)),
    )
    words = what(found)
    return Page(
        "result",
        f"Result {cut(sanitise(found.label or found.id), 60)}",
        (
            Facts("result", "", items),
            *evidence(source, found),
            Code("command", "The command that made it", command_line(found.command)),
            Code("repro", "Measure it again", command_line(["torchstone", "repro", found.id])),
        ),
        ident=found.id,
        lead=cut(sanitise(" · ".join(words)), 300),
        crumbs=(("Overview", Link("landing")),),
        params=query.params,
    )

"""The evidence behind a figure: samples, checks, contract, environment, compiler, roofline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchstone.records import (
    Agreement,
    Calibration,
    Check,
    Contract,
    Environment,
    Leaf,
    Measurement,
    Result,
    UsageError,
    describe_leaf,
)
from torchstone.records.format import format_bytes, format_percent
from torchstone.show.charts import Strip
from torchstone.show.evidence import doubt_text
from torchstone.show.rows import Figures, against_first, machine, speedup_interval, what
from torchstone.show.run_table import speedup_words
from torchstone.show.table import sanitise
from torchstone.web.cells import (
    LEVEL_MARKS,
    bytes_cell,
    command_line,
    cut,
    number_cell,
    outcome_word,
    seconds_cell,
    text_cell,
    verdict_cell,
    when,
)
from torchstone.web.page import (
    Cell,
    Code,
    Column,
    Facts,
    Group,
    Link,
    Notice,
    Page,
    Picture,
    Section,
    Table,
)
from torchstone.web.query import Query
from torchstone.web.sources import DataAccess
from torchstone.web.views import parts
from torchstone.web.views.parts import arms_looked_at
from torchstone.web.views.profiles import ledger_sections, profile_sections

MOST_LEAVES = 200
ARMS = (
    Column("arm", "Arm"),
    Column("outcome", "Outcome"),
    Column("floor", "Floor", True, "s", help="The fastest steps, with what they may be off by"),
    Column("typical", "Typical", True, "s"),
    Column("speedup", "Speed-up", True, "×"),
    Column("verdict", "Verdict"),
    Column("compile_cold", "Cold", True, "s", group="Compile"),
    Column("compile_warm", "Warm", True, "s", group="Compile"),
    Column("tensor_peak_bytes", "Tensors", True, "bytes", group="Memory"),
    Column("peak_bytes", "Process", True, "bytes", group="Memory"),
    Column("overhead_bytes", "Beyond tensors", True, "bytes", group="Memory"),
    Column("graph_breaks", "Graph breaks", True),
    Column("recompiles", "Recompiles", True),
    Column("processes", "Processes", True),
    Column("samples", "Samples", True),
    Column("agreement", "Answer checked"),
    *parts.SPEEDUP_ENDS,
    Column("threshold", "Smallest difference believed", True, shown=False),
    Column("smallest_detectable", "Smallest difference that would show", True, shown=False),
    Column("deciding_budget_s", "Budget that would decide", True, "s", shown=False),
)
CHECKS = (
    Column("level", "Level"),
    Column("rule", "Rule"),
    Column("message", "What it says"),
    Column("arms", "Arms"),
    Column("figures", "Figures"),
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


def _arms(result: Result, known: Sequence[Figures | None]) -> Table:
    arms = zip(result.arms, known, strict=True)
    rows = tuple(_arm(result, measured, found) for measured, found in arms)
    return Table("arms", "Arms", ARMS, rows, total=len(rows))


def _arm(result: Result, measured: Measurement, found: Figures | None) -> tuple[Cell, ...]:
    comparison = against_first(result, measured.arm.name)
    cost, memory, graphs = measured.compile, measured.memory, measured.graphs
    speedup, ends = ("", "")
    interval = speedup_interval(comparison) if comparison else None
    if comparison is not None:
        speedup, ends = speedup_words(comparison.speedup, interval)
    agreed = measured.agreement
    return (
        text_cell(measured.arm.name),
        outcome_word(measured.outcome, measured.detail.message),
        seconds_cell(found.floor.value if found else None),
        seconds_cell(found.typical.value if found else None),
        Cell(comparison.speedup if comparison else None, speedup, detail=ends),
        verdict_cell(comparison.verdict if comparison else None),
        seconds_cell(cost.cold_ns / 1e9 if cost else None),
        seconds_cell(cost.warm_ns / 1e9 if cost and cost.warm_ns is not None else None),
        bytes_cell(memory.tensor_peak_bytes if memory else None),
        bytes_cell(memory.peak_bytes if memory else None),
        bytes_cell(memory.overhead_bytes if memory else None),
        number_cell(graphs.breaks if graphs else None),
        number_cell(graphs.recompiles + graphs.late_recompiles if graphs else None),
        number_cell(found.processes if found else None),
        number_cell(len(found.samples) if found else None),
        text_cell(f"{agreed.method}, {agreed.checked} outputs" if agreed else ""),
        *parts.ends(interval),
        Cell(comparison.threshold if comparison else None),
        Cell(comparison.smallest_detectable if comparison else None),
        Cell(comparison.deciding_budget_s if comparison else None),
    )


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
            yield Group(left, (Code(f"stderr-{number}", "", text, copy=False),), folded=True)


def _samples(strips: tuple[Strip, ...]) -> Picture:
    note = "Every timed sample, by process and turn, in the order they were taken."
    return Picture("samples", "Raw samples", strips, note if strips else "", "No sample is stored.")


def checks_table(checks: Sequence[Check]) -> Table:
    """What the rules found, the worst first."""
    order = {"fail": 0, "warn": 1, "note": 2, "ok": 3}
    listed = sorted(checks, key=lambda check: order[check.level.value])
    rows = tuple(
        (
            Cell(one.level.value, one.level.value, mark=LEVEL_MARKS[one.level]),
            text_cell(one.rule),
            text_cell(one.message, longest=400),
            text_cell(", ".join(one.arms)),
            text_cell(", ".join(f"{name} {value:.4g}" for name, value in one.figures.items())),
        )
        for one in listed
    )
    return Table("checks", "Checks", CHECKS, rows, empty="No rule was applied.", total=len(rows))


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

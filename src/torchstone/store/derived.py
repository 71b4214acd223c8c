"""The tables that are derived from what was measured, narrow enough to answer a page at once.

A run is one row of `run_fact`, a suite of a run one row of `group_fact`, a case one row of
`case_fact`. What cases have in common over the nights is stored once: their keys in `series` and
`case_group`, their machine and branch in `lane`, their words in `case_detail`. Figures carry the
version of their definition. All of it can be made anew (`upkeep`), but for the figures of cases
without samples: of those that were imported, never measured, or thinned.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)

from torchstone.store.schema import metadata, run, thinned

lane = Table(
    "lane",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("machine_id", Text, nullable=False),
    Column("branch", Text, nullable=False),
    UniqueConstraint("machine_id", "branch"),
)
"""Runs that can be lined up: those of one machine and branch."""

run_fact = Table(
    "run_fact",
    metadata,
    Column("run", ForeignKey(run.c.seq), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("at", Float, nullable=False),  # `created_s`; 0 if `created` is not a date
    Column("lane", ForeignKey(lane.c.seq), nullable=False),
    Column("created", Text, nullable=False),
    Column("created_s", Float),
    Column("label", Text, nullable=False),
    Column("revision", Text, nullable=False),  # the commit
    Column("branch", Text, nullable=False),
    Column("dirty", Boolean, nullable=False),
    Column("machine_id", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("torch", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("suites", Text, nullable=False),  # a JSON list
    Column("planned", Integer, nullable=False),
    Column("outcomes", Text, nullable=False),  # a JSON object: outcome to number
    Index("run_fact_at", "at"),
    Index("run_fact_lane", "lane", "at"),
    Index("run_fact_revision", "revision"),
)

_KEY = ("suite", "scale", "mode", "precision", "variant", "device")


def _key_columns() -> list[Column[str] | Column[int]]:
    texts: list[Column[str]] = [Column(name, Text, nullable=False) for name in _KEY]
    allocator = Column("allocator", Text, nullable=False, server_default="default")
    return [*texts, Column("threads", Integer, nullable=False), allocator]


case_group = Table(
    "case_group",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    *_key_columns(),
)
"""Cases that differ in their model alone."""

series = Table(
    "series",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),  # digest of the `CaseKey`
    Column("model", Text, nullable=False),
    *_key_columns(),
)
"""The same case in every run."""

case_detail = Table(
    "case_detail",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("document", Text, nullable=False),  # a JSON object of fields of `CaseFigures`
)
"""What of a case's figures has no column; it is the same night after night."""

case_fact = Table(
    "case_fact",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("run", ForeignKey(run.c.seq), nullable=False),
    Column("position", Integer, nullable=False),  # in the run's plan
    Column("definition", Integer, nullable=False),
    Column("series", ForeignKey(series.c.seq), nullable=False),
    Column("lane", Integer, nullable=False),  # as in `run_fact`, and so is the next
    Column("at", Float, nullable=False),
    Column("passes", Integer),  # 1 or 0; None where it cannot run here, which is neither
    Column("outcome", Text, nullable=False),
    Column("result_id", Text),
    Column("speedup", Float),
    Column("low", Float),
    Column("high", Float),
    Column("level", Float),
    Column("log_error", Float),
    Column("log_freedom", Float),
    Column("verdict", Text),
    Column("base_ns", Float),
    Column("new_ns", Float),
    Column("compile_cold_ns", BigInteger),
    Column("compile_warm_ns", BigInteger),
    Column("base_tensor_bytes", BigInteger),
    Column("new_tensor_bytes", BigInteger),
    Column("base_peak_bytes", BigInteger),
    Column("new_peak_bytes", BigInteger),
    Column("base_overhead_bytes", BigInteger),
    Column("new_overhead_bytes", BigInteger),
    Column("base_faults", Float),
    Column("new_faults", Float),
    Column("graphs", BigInteger),
    Column("graph_breaks", BigInteger),
    Column("recompiles", BigInteger),
    Column("late_recompiles", BigInteger),
    Column("flops", BigInteger),
    Column("flops_covered", Float),
    Column("agreement", Text),
    Column("error_ratio", Float),
    Column("outputs_checked", BigInteger),
    Column("worst_check", Text),
    Column("replicates", BigInteger),
    Column("elapsed_s", Float),
    Column("detail", Integer),  # of `case_detail`; None: all of it is default
    UniqueConstraint("run", "position", "definition"),
    Index("case_fact_history", "series", "lane", "passes", "at"),
)

MEANS = (
    "compile_cold_ns",
    "compile_warm_ns",
    "memory_ratio",
    "process_memory_ratio",
    "compiler_bytes",
)
"""The means of a `SuiteSummary` that have no interval."""


def _mean_columns() -> list[Column[float] | Column[int]]:
    return [
        column
        for name in MEANS
        for column in (Column(name, Float), Column(f"{name}_n", Integer, nullable=False))
    ]


group_fact = Table(
    "group_fact",
    metadata,
    Column("run", ForeignKey(run.c.seq), primary_key=True),
    Column("case_group", ForeignKey(case_group.c.seq), primary_key=True),
    Column("definition", Integer, primary_key=True),  # of the summary
    Column("figures_definition", Integer, primary_key=True),  # of the cases in it
    Column("position", Integer, nullable=False),  # of its first case in the plan
    Column("at", Float, nullable=False),  # as in `run_fact`
    Column("passed", Integer, nullable=False),
    Column("counted", Integer, nullable=False),
    Column("planned", Integer, nullable=False),
    Column("outcomes", Text, nullable=False),  # a JSON object: outcome to number, 0 left out
    Column("speedup", Float),
    Column("speedup_n", Integer, nullable=False),
    Column("low", Float),
    Column("high", Float),
    Column("level", Float, nullable=False),
    *_mean_columns(),
    Column("verdicts", Text, nullable=False),  # likewise
    Column("no_verdict", Integer, nullable=False),
    Column("false_discovery_rate", Float, nullable=False),
    Index("group_fact_history", "case_group", "at"),
)

FACT_TABLES = (
    thinned,
    lane,
    run_fact,
    case_group,
    series,
    case_detail,
    case_fact,
    group_fact,
)
"""What schema 4 added."""

"""Records of the benchmark database: how they are read, and that they come out as they went in."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.interop.support import (
    FIXTURES,
    HUGGINGFACE,
    TABLES,
    TORCHBENCH,
    cases_of,
    foreign,
    put,
    read_csv,
    read_hud,
    records,
    table,
)
from torchstone.interop.dynamo_csv import DYNAMO_CSV
from torchstone.interop.hud_v3 import HUD_V3
from torchstone.interop.rows import metric_of, metric_text, plain
from torchstone.records import (
    FOREIGN_DEFINITION,
    CaseMetrics,
    Outcome,
    UsageError,
    from_data,
    to_data,
)

BOTH = tuple(f"{TORCHBENCH}_{name}" for name in TABLES)


def text(record: dict[str, Any]) -> str:
    """As one line that compares; NaN is not equal to itself, its text is."""
    return json.dumps(record, sort_keys=True)


def a_record(**changes: Any) -> dict[str, Any]:
    record = {
        "benchmark": {"name": "TorchInductor", "mode": "inference", "dtype": "amp"},
        "model": {"name": "m", "backend": "inductor", "origins": ["torchbench"]},
        "metric": {"name": "speedup", "benchmark_values": [1.5]},
    }
    return {**record, **changes}


def read_text(folder: Path, text: str) -> Any:
    path = folder / "some.json"
    path.write_text(text, encoding="utf-8")
    return HUD_V3.read([path])


def test_records_of_both_tables_become_cases() -> None:
    cases = cases_of(read_hud(*BOTH))
    assert {model: case.outcome for model, case in cases.items()} == {
        "dcgan": Outcome.OK,
        "nanogpt": Outcome.OK,
        "maml": Outcome.ERROR,
        "demucs": Outcome.ERROR,
        "hf_Bert": Outcome.OK,
        "soft_actor_critic": Outcome.ERROR,
    }
    key = cases["nanogpt"].key
    assert (key.suite, key.precision, key.variant) == ("torchbench", "fp32", "inductor")
    assert (key.mode, key.device, key.scale) == ("inference", "cpu_x86", "full")
    assert cases["maml"].reason == "fail_to_run"
    assert "no performance row" in cases["soft_actor_critic"].reason
    assert all(case.definition == FOREIGN_DEFINITION for case in cases.values())
    assert all(case.speedup is None for case in cases.values())


def test_figures_are_kept_under_their_names() -> None:
    speed, answer = cases_of(read_hud(*BOTH))["nanogpt"].foreign
    assert dict(zip(speed.columns, speed.cells, strict=True)) == {
        "speedup": "1.4413077",
        "abs_latency": "77.100214",
        "compilation_latency": "31.772001",
        "compression_ratio": "1.2200417",
        "unique_graphs": "1",
    }
    assert (answer.columns, answer.cells) == (("accuracy",), ("pass",))
    assert (speed.definition, speed.source, speed.line) == ("pytorch-dynamo", f"{BOTH[0]}.json", 6)


def test_a_file_that_was_appended_to_counts_with_its_last_attempt() -> None:
    imported = read_hud(*BOTH)
    speed = cases_of(imported)["dcgan"].foreign[0]
    assert speed.cell("speedup") == "1.0811204"
    # The first attempt's compile time is not mixed with the second one's speed.
    assert speed.cell("compilation_latency") is None
    assert "1 rows were left out" in " ".join(imported.notes)


def test_what_came_in_goes_out_record_for_record() -> None:
    files = HUD_V3.write(read_hud(*BOTH).view)
    assert set(files) == {f"{name}.json" for name in BOTH}
    superseded = [0, 1, 2, 3, 4]  # the first attempt at dcgan
    for name, data in files.items():
        before = records((FIXTURES / name).read_bytes())
        kept = [r for i, r in enumerate(before) if "accuracy" in name or i not in superseded]
        assert sorted(map(text, records(data))) == sorted(map(text, kept))


def test_an_array_with_a_commit_is_read_and_another_benchmark_left_out() -> None:
    imported = read_hud("database")
    cases = cases_of(imported)
    assert cases["hf_T5"].outcome is Outcome.OK
    assert cases["hf_GPT2"].outcome is Outcome.OOM
    assert cases["hf_T5"].key.variant == "dynamo:inductor", "the record does not say more"
    assert imported.run.git is not None
    assert imported.run.git.commit.startswith("0123456789")
    assert imported.run.git.branch == "main"
    assert imported.run.torch == "2.13.0a0"
    assert imported.run.created == "2025-11-14T06:00:00+00:00"
    assert "1 records of other benchmarks" in " ".join(imported.notes)
    assert "'vLLM benchmark'" in " ".join(imported.notes)
    (out,) = HUD_V3.write(imported.view).values()
    before = json.loads((FIXTURES / "database.json").read_text())[:-1]
    assert sorted(map(text, records(out))) == sorted(map(text, before))


def test_records_of_two_commits_are_refused(tmp_path: Path) -> None:
    lines = [json.dumps(a_record(head_sha=sha)) for sha in ("aa", "bb")]
    with pytest.raises(UsageError, match="2 commits"):
        read_text(tmp_path, "\n".join(lines))


def test_an_imported_case_survives_the_store() -> None:
    for case in read_hud(*BOTH).cases:
        assert from_data(CaseMetrics, to_data(case)) == case


NUMBER = st.one_of(st.integers(-(10**12), 10**12), st.floats())
METRIC = st.one_of(
    st.builds(lambda value: {"benchmark_values": [value]}, NUMBER),
    st.builds(
        lambda word: {"extra_info": {"benchmark_values": [word]}},
        st.one_of(st.text(max_size=8), st.sampled_from(["pass", "NaN", "1.5", "null", "{}"])),
    ),
    st.dictionaries(
        st.sampled_from(["benchmark_values", "target_value", "extra_info", "unit"]),
        st.one_of(NUMBER, st.none(), st.booleans(), st.lists(NUMBER, max_size=3), st.text()),
    ),
)


@given(METRIC)
@example({"benchmark_values": [1.5], "target_value": 1.3})
@example({"benchmark_values": [True]})
@example({"extra_info": {"benchmark_values": ["pass"], "unit": "x"}})
def test_any_metric_can_be_written_as_a_cell_and_read_back(metric: dict[str, Any]) -> None:
    named = {"name": "x", **metric}
    cell = metric_text(named)
    cell.encode("utf-8")
    assert text(metric_of("x", cell)) == text(named)


def test_the_tables_as_records_and_back_say_the_same(tmp_path: Path) -> None:
    csv = read_csv(*(f"{HUGGINGFACE}_{name}" for name in TABLES))
    hud = HUD_V3.read(put(tmp_path, HUD_V3.write(csv.view)))
    assert {
        c.key: (c.outcome, c.reason) for c in hud.cases if c.foreign[0].table == "accuracy"
    } == {c.key: (c.outcome, c.reason) for c in csv.cases if c.foreign[0].table == "accuracy"}
    assert {c.key: c.outcome for c in hud.cases} == {c.key: c.outcome for c in csv.cases}
    files = DYNAMO_CSV.write(hud.view)
    for name, data in files.items():
        before = {row[1]: row for row in table((FIXTURES / name).read_bytes())}
        header, *rows = table(data)
        for row in rows:
            found = dict(zip(header, row, strict=False))
            wanted = dict(zip(before["name"], before[row[1]], strict=True))
            for column in ("speedup", "abs_latency"):
                if column in wanted:
                    assert float(found[column]) == float(wanted[column])
            for column in ("dev", "name", "batch_size", "accuracy"):
                assert found.get(column) == wanted.get(column)


def test_several_values_go_into_a_table_as_their_mean() -> None:
    files = DYNAMO_CSV.write(read_hud(*BOTH).view)
    header, *rows = table(files[f"{BOTH[0]}.csv"])
    speedup = {row[header.index("name")]: row[header.index("speedup")] for row in rows}
    assert float(speedup["hf_Bert"]) == 1.375
    assert float(speedup["dcgan"]) == 1.0811204


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("{", "line 1: this is not JSON"),
        ("\n\n[1, 2]", "line 3: this is no record"),
        (json.dumps(a_record()) + "\nnull", "line 2: this is no record"),
        ("[" + json.dumps(a_record()), "the array is cut off"),
        ("[" + json.dumps(a_record()) + ",", "the array is cut off"),
        ("[" + json.dumps(a_record()) + ",]", "a comma and no value"),
        ("[" + json.dumps(a_record()) + " 1]", "does not go on"),
        ("[" + json.dumps(a_record()) + "] x", "more behind the end"),
        ("[" * 100_000, "this is no record|nested deeper"),
        (json.dumps(a_record(x=[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]])), "nested deeper"),
        ('{"a":' * 100_000, "nested deeper"),
        ("9" * 10_000, "a number is too long|this is no record"),
        (json.dumps(a_record(metric={"name": 3})), "this is no record"),
        (json.dumps(a_record(metric={"name": ""})), "there is no metric's name"),
        (json.dumps(a_record(metric={"name": "\ud800"})), "the metric's name"),
        (json.dumps(a_record(model={"name": "\ud800"})), "the model name"),
        (json.dumps(a_record(model={"name": "m" * 501})), "the model name"),
        (json.dumps(a_record(more="x" * 70_000)), "longer than 65536"),
        (json.dumps(a_record(benchmark={"name": "other"})), "hold no result"),
    ],
    ids=range(19),
)
def test_a_broken_file_is_refused_with_its_line(written: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        read_text(tmp_path, written)
    assert refused.value.remedy


def test_records_may_follow_each_other_in_any_layout(tmp_path: Path) -> None:
    one, two = (a_record(model={"name": name}) for name in "ab")
    dense = json.dumps(one) + json.dumps(two)
    airy = json.dumps([one, two], indent=4)
    for written in (dense, airy, "\ufeff" + dense.replace("}{", "}\r\n{")):
        assert sorted(cases_of(read_text(tmp_path, written))) == ["a", "b"]
    assert foreign(read_text(tmp_path, airy))[1].line > 10


def test_what_the_record_says_beside_is_kept_even_if_it_is_no_text(tmp_path: Path) -> None:
    record = a_record(
        note="\ud800", metric={"name": "accuracy", "extra_info": {"benchmark_values": ["\udfff"]}}
    )
    imported = read_text(tmp_path, json.dumps(record))
    json.dumps(to_data(imported.cases[0]), ensure_ascii=False).encode("utf-8")
    (out,) = HUD_V3.write(imported.view).values()
    assert records(out) == [record]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=5))
@example([math.inf, -math.inf])
@example([1e308, 1e308, 1e308])
@example([math.nan, 1.0])
def test_any_numbers_have_a_mean(values: list[float]) -> None:
    cell = metric_text({"name": "speedup", "benchmark_values": values})
    found = float(plain(cell))
    if all(map(math.isfinite, values)):
        assert min(values) <= found <= max(values) or math.isclose(found, values[0])
    else:
        assert not math.isfinite(found)

"""The runner's tables: how they are read, and that they come out as they went in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interop.support import (
    FIXTURES,
    HUGGINGFACE,
    TABLES,
    TIMM,
    cases_of,
    foreign,
    put,
    read_csv,
    table,
)
from torchstone.interop.dynamo_csv import DYNAMO_CSV
from torchstone.records import (
    FOREIGN_DEFINITION,
    METRICS_DEFINITION,
    CaseMetrics,
    Outcome,
    UsageError,
    from_data,
    to_data,
)

BOTH = tuple(f"{HUGGINGFACE}_{name}" for name in TABLES)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.csv"
    path.write_text(text, encoding="utf-8")
    return path


def outcome_of(folder: Path, performance: str | None, accuracy: str | None) -> CaseMetrics:
    """One model called `m` in tables that also hold a model that passed."""
    paths = []
    if performance is not None:
        text = f"dev,name,batch_size,speedup\ncuda,good,8,1.5\n{performance}"
        paths.append(write(folder, f"{HUGGINGFACE}_performance", text))
    if accuracy is not None:
        text = f"dev,name,batch_size,accuracy\ncuda,good,1,pass\n{accuracy}"
        paths.append(write(folder, f"{HUGGINGFACE}_accuracy", text))
    return cases_of(DYNAMO_CSV.read(paths))["m"]


def test_rows_of_both_tables_become_cases() -> None:
    cases = cases_of(read_csv(*BOTH))
    assert {model: case.outcome for model, case in cases.items()} == {
        "AlbertForMaskedLM": Outcome.OK,
        "BartForCausalLM": Outcome.WRONG_ANSWER,
        "BertForMaskedLM": Outcome.ERROR,
        "DistilBertForMaskedLM": Outcome.NONDETERMINISTIC,
        "GPT2ForSequenceClassification": Outcome.OK,
        "MobileBertForMaskedLM": Outcome.ERROR,
        "OPTForCausalLM": Outcome.TIMEOUT,
        "T5Small": Outcome.OK,
        "M2M100ForConditionalGeneration": Outcome.ERROR,
        "XGLMForCausalLM": Outcome.OOM,
    }
    albert = cases["AlbertForMaskedLM"].key
    assert (albert.suite, albert.scale, albert.mode) == ("huggingface", "full", "inference")
    assert (albert.precision, albert.variant, albert.device) == ("bf16", "inductor", "cuda")


def test_the_reason_keeps_the_runners_word() -> None:
    cases = cases_of(read_csv(*BOTH))
    assert cases["BartForCausalLM"].reason == "fail_accuracy"
    assert "speedup 0.000000" in cases["BertForMaskedLM"].reason
    assert "pass_due_to_skip" in cases["GPT2ForSequenceClassification"].reason
    assert "no performance row" in cases["M2M100ForConditionalGeneration"].reason
    assert "no accuracy row" in cases["MobileBertForMaskedLM"].reason
    assert cases["XGLMForCausalLM"].failed_arm == "eager"
    assert cases["OPTForCausalLM"].failed_arm == "inductor"
    assert cases["AlbertForMaskedLM"].reason == ""


def test_no_figure_of_theirs_stands_in_a_field_of_ours() -> None:
    for case in read_csv(*BOTH).cases:
        assert case.definition == FOREIGN_DEFINITION != METRICS_DEFINITION
        blank = CaseMetrics(
            case.key,
            case.outcome,
            case.reason,
            case.failed_arm,
            foreign=case.foreign,
            definition=FOREIGN_DEFINITION,
        )
        assert case == blank
        assert {one.definition for one in case.foreign} == {"pytorch-dynamo"}


def test_their_figures_are_kept_to_the_letter_with_their_place() -> None:
    speed, answer = cases_of(read_csv(*BOTH))["AlbertForMaskedLM"].foreign
    assert (speed.table, answer.table) == TABLES
    assert speed.cell("abs_latency") == "36.204417"
    assert (speed.source, speed.line) == (f"{HUGGINGFACE}_performance.csv", 2)
    # The same name means another quantity in the accuracy table; the two are not merged.
    assert speed.cell("compilation_latency") == "21.447120"
    assert answer.cell("compilation_latency") == "17.120033"
    assert speed.cell("no such column") is None


def test_the_notes_say_what_the_tables_do_not_show() -> None:
    notes = " ".join(read_csv(*BOTH).notes)
    assert "its own definitions" in notes
    assert "2 cases have no row in the performance table" in notes
    assert "1 cases have no row in the accuracy table and count as failed: MobileBert" in notes
    assert "no row of a model whose process dies" in notes
    assert "100 times" not in notes, "memory on CUDA is the allocator's"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("pass", Outcome.OK),
        ("eager_variation", Outcome.OK),
        ("fail_accuracy", Outcome.WRONG_ANSWER),
        ("eager_two_runs_differ", Outcome.NONDETERMINISTIC),
        ("timeout", Outcome.TIMEOUT),
        ("OOM", Outcome.OOM),
        ("eager_2nd_run_OOM", Outcome.OOM),
        ("fail_to_run", Outcome.ERROR),
        ("model_fail_to_load", Outcome.ERROR),
        ("eager_1st_run_fail", Outcome.ERROR),
        ("infra_error", Outcome.ERROR),
        ("a word of tomorrow", Outcome.ERROR),
        ("", Outcome.ERROR),
    ],
)
def test_each_status_has_its_outcome(status: str, outcome: Outcome, tmp_path: Path) -> None:
    case = outcome_of(tmp_path, "cuda,m,8,1.2\n", f"cuda,m,1,{status}\n")
    assert case.outcome is outcome
    if outcome is not Outcome.OK and status:
        assert case.reason == status


@pytest.mark.parametrize("speedup", ["0.0", "0", "", "nan", "inf", "-1.5", "1_000", "fast"])
def test_a_speedup_that_is_none_is_a_failure(speedup: str, tmp_path: Path) -> None:
    case = outcome_of(tmp_path, f"cuda,m,8,{speedup}\n", "cuda,m,1,pass\n")
    assert case.outcome is Outcome.ERROR
    assert "performance failed" in case.reason


def test_a_skipped_check_passes_even_without_a_speedup(tmp_path: Path) -> None:
    case = outcome_of(tmp_path, "cuda,m,8,0.0\n", "cuda,m,1,pass_due_to_skip\n")
    assert case.outcome is Outcome.OK


def test_without_an_accuracy_table_nothing_was_checked_and_a_note_says_so(tmp_path: Path) -> None:
    assert outcome_of(tmp_path, "cuda,m,8,1.2\n", None).outcome is Outcome.OK
    notes = " ".join(read_csv(f"{HUGGINGFACE}_performance").notes)
    assert "their answers were not checked" in notes


def test_rows_pile_up_and_the_last_one_counts() -> None:
    imported = read_csv("speedup_inductor")
    cases = cases_of(imported)
    assert cases["resnet18"].outcome is Outcome.OK
    assert [one.line for one in cases["resnet18"].foreign] == [3]
    notes = " ".join(imported.notes)
    assert "1 rows were left out" in notes
    assert "line 2 of speedup_inductor.csv" in notes
    assert "100 times too large" in notes
    assert "'unknown' stands for what is not said" in notes


def test_a_row_that_was_cut_short_stays_short() -> None:
    imported = read_csv("speedup_inductor")
    (alexnet,) = cases_of(imported)["alexnet"].foreign
    assert alexnet.cells == ("cpu", "alexnet", "0", "0.000000", "0.000000")
    assert alexnet.cell("compression_ratio") is None
    assert "line 4 of speedup_inductor.csv" in " ".join(imported.notes)


def test_byte_order_mark_carriage_returns_and_odd_cells_are_taken_as_they_are() -> None:
    raw = (FIXTURES / f"{TIMM}_performance.csv").read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf")
    assert b"\r\n" in raw
    cases = cases_of(read_csv(f"{TIMM}_performance", f"{TIMM}_accuracy"))
    assert cases["mobilenetv3_large_100"].outcome is Outcome.OK
    assert cases["mobilenetv3_large_100"].key.device == "cuda_a10g"
    assert cases["mobilenetv3_large_100"].foreign[0].cell("notes by hand") == "kept, as it is"
    assert cases["ghostnet_100"].outcome is Outcome.ERROR
    assert cases["ghostnet_100"].foreign[0].cell("compilation_latency") == "inf"
    assert "speedup empty" in cases["swin, base"].reason
    assert cases["nfnet_l0"].outcome is Outcome.OK


def test_a_tag_keeps_branches_apart_and_a_shifted_status_is_found() -> None:
    found = {case.key.variant: case for case in read_csv("accuracy_aot_eager").cases}
    assert found["aot_eager:main"].outcome is Outcome.OK
    assert found["aot_eager:my-branch"].outcome is Outcome.WRONG_ANSWER
    assert found["aot_eager"].key.model == "maml"
    assert found["aot_eager"].outcome is Outcome.TIMEOUT


@pytest.mark.parametrize(
    "names",
    [BOTH, (f"{TIMM}_performance", f"{TIMM}_accuracy"), ("accuracy_aot_eager",)],
    ids=["huggingface", "timm", "tagged"],
)
def test_what_came_in_goes_out_cell_for_cell(names: tuple[str, ...]) -> None:
    files = DYNAMO_CSV.write(read_csv(*names).view)
    assert set(files) == {f"{name}.csv" for name in names}
    for name, data in files.items():
        before = table((FIXTURES / name).read_bytes())
        # Cases come out in the order of the run: those of the first table, then the others.
        assert table(data)[0] == before[0]
        assert sorted(table(data)[1:]) == sorted(before[1:])


def test_a_superseded_row_does_not_go_out_again() -> None:
    files = DYNAMO_CSV.write(read_csv("speedup_inductor").view)
    before = table((FIXTURES / "speedup_inductor.csv").read_bytes())
    assert table(files["speedup_inductor.csv"]) == [before[0], *before[2:]]


def test_out_and_in_again_is_the_same(tmp_path: Path) -> None:
    first = read_csv(*BOTH)
    again = DYNAMO_CSV.read(put(tmp_path, DYNAMO_CSV.write(first.view)))
    assert {c.key: (c.outcome, c.reason) for c in again.cases} == {
        c.key: (c.outcome, c.reason) for c in first.cases
    }
    assert sorted(one.cells for one in foreign(again)) == sorted(
        one.cells for one in foreign(first)
    )


def test_an_imported_case_survives_the_store() -> None:
    for case in read_csv(*BOTH).cases:
        assert from_data(CaseMetrics, to_data(case)) == case


def test_a_folder_is_read_and_what_is_no_table_is_named(tmp_path: Path) -> None:
    inner = tmp_path / "artefacts" / "run"
    metrics = f"{HUGGINGFACE}_performance_compilation_metrics"
    put(inner, {f"{n}.csv": (FIXTURES / f"{n}.csv").read_bytes() for n in (*BOTH, metrics)})
    (inner / "people.csv").write_text("first,last\nA,B\n")
    (inner / "notes.txt").write_text("not looked at")
    imported = DYNAMO_CSV.read([tmp_path])
    assert len(imported.cases) == 10
    notes = " ".join(imported.notes)
    assert f"{metrics}.csv holds neither" in notes
    assert "people.csv is not a table" in notes
    assert str(tmp_path) not in repr(imported), "no path of the machine is kept"


def test_files_of_one_name_from_two_folders_are_one_table(tmp_path: Path) -> None:
    name = f"{HUGGINGFACE}_performance"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write(tmp_path / "a", name, "dev,name,batch_size,speedup\ncuda,one,8,1.5\n")
    write(tmp_path / "b", name, "dev,name,batch_size,speedup,extra\ncuda,two,8,2.5,x\n")
    files = DYNAMO_CSV.write(DYNAMO_CSV.read([tmp_path]).view)
    assert table(files[f"{name}.csv"]) == [
        ["dev", "name", "batch_size", "speedup", "extra"],
        ["cuda", "one", "8", "1.5", ""],
        ["cuda", "two", "8", "2.5", "x"],
    ]


def test_the_same_files_make_the_same_run() -> None:
    first, again = read_csv(*BOTH), read_csv(*BOTH)
    assert first.run.id == again.run.id
    assert first.run.id != read_csv(BOTH[0]).run.id
    assert first.run.origin == "dynamo-csv"
    assert first.run.notes == first.notes
    assert [one.key for one in first.run.plan] == [case.key for case in first.cases]
    assert first.run.command[:3] == ("torchstone", "import", "dynamo-csv")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: there is no column 'name'"),
        ("first,last\nA,B\n", "line 1: there is no column 'name'"),
        ("dev,name,batch_size,speedup\ncuda,,8,1.5\n", "line 2: there is no model name"),
        ("dev,name,batch_size,speedup\ncuda\n", "line 2: there is no model name"),
        ('dev,name,batch_size,speedup\ncuda,"m,8,1.5\n', "line 2: this is not CSV"),
        ("dev,name,batch_size,speedup\ncuda,m,8,\x00\n", "line 2: there is a NUL"),
        ("dev,name,batch_size,speedup\ncuda,{},8,1\n".format("m" * 501), "line 2: the model name"),
        ("dev,name,speedup\n{}\n".format("," * 1001), "line 2: there are too many cells"),
        ("dev,name,speedup\nc,{},1\n".format("m" * 70_000), "line 2: there are too many cells"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(text: str, says: str, tmp_path: Path) -> None:
    path = write(tmp_path, "broken", text)
    with pytest.raises(UsageError) as refused:
        DYNAMO_CSV.read([path])
    assert refused.value.message.startswith("broken.csv, ")
    assert says in refused.value.message
    assert refused.value.remedy


def test_a_table_without_rows_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="hold no result"):
        DYNAMO_CSV.read([write(tmp_path, "empty", "dev,name,batch_size,speedup\n")])


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.csv cannot be read"):
        DYNAMO_CSV.read([tmp_path / "gone.csv"])
    with pytest.raises(UsageError, match="no file to import"):
        DYNAMO_CSV.read([tmp_path])
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(UsageError, match="not a regular file"):
        DYNAMO_CSV.read([tmp_path / "pipe.csv"])

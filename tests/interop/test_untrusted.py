"""Files from anywhere: whatever they hold, they are imported or refused, and nothing else."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.interop.dashboard import dashboard
from tests.interop.support import FIXTURES, HUGGINGFACE, TORCHBENCH, cases_of, foreign
from torchstone.interop import Format, Imported, files
from torchstone.interop.dynamo_csv import DYNAMO_CSV
from torchstone.interop.hud_v3 import HUD_V3
from torchstone.records import CaseMetrics, Run, UsageError, from_data, to_data

ENDINGS: dict[str, str] = {"dynamo-csv": "csv", "hud-v3": "json"}
CSV_BYTES = (FIXTURES / f"{HUGGINGFACE}_performance.csv").read_bytes()
HUD_BYTES = (FIXTURES / f"{TORCHBENCH}_performance.json").read_bytes()


def read_bytes(form: Format, data: bytes, stem: str = "x") -> Imported | None:
    """What the bytes hold; None where they are refused, as a person is told."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{stem}.{ENDINGS[form.name]}")
        path.write_bytes(data)
        try:
            imported = form.read([path])
        except UsageError:
            return None
    assert imported.cases
    return imported


def check_sound(imported: Imported) -> None:
    """It can be stored, exported in both formats, and read back as the same."""
    document = json.dumps(to_data(imported.run), ensure_ascii=False).encode("utf-8")
    assert from_data(Run, json.loads(document)) == imported.run
    cases = json.dumps(to_data(imported.cases), ensure_ascii=False).encode("utf-8")
    assert [from_data(CaseMetrics, one) for one in json.loads(cases)] == list(imported.cases)
    assert len({case.key for case in imported.cases}) == len(imported.cases)
    dashboard(imported.view)
    for form in (DYNAMO_CSV, HUD_V3):
        for name in form.write(imported.view):
            assert Path(name).name == name


@given(st.binary(max_size=300))
@example(b"")
@example(b"\xff\xfe\x00")
@example(b"\xef\xbb\xbfname,speedup\n\xef\xbb\xbf,1\n")
@example(b'"name","speedup"\r"a","1"\r')
def test_any_bytes_as_a_table(data: bytes) -> None:
    imported = read_bytes(DYNAMO_CSV, data)
    if imported is not None:
        check_sound(imported)


@given(st.binary(max_size=300))
@example(b"[]")
@example(b"[[[[")
@example(b'"')
def test_any_bytes_as_records(data: bytes) -> None:
    assert read_bytes(HUD_V3, data) is None


@given(st.data())
def test_a_table_damaged_anywhere(data: st.DataObject) -> None:
    damaged = damage(data, CSV_BYTES)
    imported = read_bytes(DYNAMO_CSV, damaged, f"{HUGGINGFACE}_performance")
    if imported is not None:
        check_sound(imported)


@given(st.data())
def test_records_damaged_anywhere(data: st.DataObject) -> None:
    imported = read_bytes(HUD_V3, damage(data, HUD_BYTES))
    if imported is not None:
        check_sound(imported)


def damage(data: st.DataObject, good: bytes) -> bytes:
    """The file with a stretch of it replaced by something else."""
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(len(good), start + 40)))
    return good[:start] + data.draw(st.binary(max_size=20)) + good[end:]


CELL = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["0.0", "1.5", "nan", "pass", "timeout", "cpu", '{"benchmark_values":[1]}']),
)
COLUMN = st.one_of(
    CELL, st.sampled_from(["name", "dev", "tag", "speedup", "accuracy", "torchstone_outcome"])
)


@given(
    st.lists(COLUMN, max_size=5),
    st.lists(st.lists(CELL, max_size=8), max_size=5),
    st.sampled_from(["x", f"{HUGGINGFACE}_accuracy", "accuracy_..", "-"]),
)
@example(header=["\ufeff"], rows=[["\r"], ["1.5", '"', "a\nb"]], stem="x")
def test_a_table_of_any_cells_comes_out_as_it_went_in(
    header: list[str], rows: list[list[str]], stem: str
) -> None:
    columns = ["name", "speedup", *header]
    rows = [[f"model {i}", *row] for i, row in enumerate(rows)]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([columns, *rows])
    imported = read_bytes(DYNAMO_CSV, text.getvalue().encode("utf-8", "replace"), stem)
    if imported is None:
        return
    check_sound(imported)
    (out,) = DYNAMO_CSV.write(imported.view).values()
    again = read_bytes(DYNAMO_CSV, out, stem)
    assert again is not None
    assert [one.cells for one in foreign(again)] == [one.cells for one in foreign(imported)]
    assert [one.columns for one in foreign(again)] == [one.columns for one in foreign(imported)]
    assert [case.outcome for case in again.cases] == [case.outcome for case in imported.cases]


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
RECORD = st.fixed_dictionaries(
    {
        "benchmark": st.fixed_dictionaries(
            {"name": st.just("TorchInductor")},
            optional={
                "mode": JSON,
                "dtype": JSON,
                "extra_info": st.one_of(
                    JSON,
                    st.dictionaries(
                        st.sampled_from(["device", "output", "batch_size", "torchstone_case"]), JSON
                    ),
                ),
            },
        ),
        "model": st.fixed_dictionaries(
            {"name": st.sampled_from(["a", "b", "a@small"])},
            optional={"backend": JSON, "origins": st.one_of(JSON, st.lists(JSON, max_size=2))},
        ),
        "metric": st.fixed_dictionaries(
            {"name": st.sampled_from(["speedup", "accuracy", "x"])},
            optional={"benchmark_values": JSON, "extra_info": JSON, "target_value": JSON},
        ),
    },
    optional={"head_sha": JSON, "timestamp": JSON, "dependencies": JSON, "runners": JSON},
)


@given(st.lists(RECORD, min_size=1, max_size=4))
def test_records_with_anything_in_them(made: list[dict[str, Any]]) -> None:
    data = "\n".join(json.dumps(one) for one in made).encode("utf-8")
    imported = read_bytes(HUD_V3, data)
    if imported is None:
        return
    check_sound(imported)
    out = b"".join(HUD_V3.write(imported.view).values())
    kept = {json.dumps(json.loads(line), sort_keys=True) for line in out.splitlines()}
    assert kept <= {json.dumps(one, sort_keys=True) for one in made}
    again = read_bytes(HUD_V3, out)
    assert again is not None
    assert {c.key: c.outcome for c in again.cases} == {c.key: c.outcome for c in imported.cases}


def test_a_name_is_kept_as_it_is_for_show_to_make_safe() -> None:
    name = "\x1b[31mred\u202e=cmd()"
    data = f"dev,name,batch_size,speedup\ncpu,{name},1,1.5\n".encode()
    imported = read_bytes(DYNAMO_CSV, data)
    assert imported is not None
    assert list(cases_of(imported)) == [name]


def test_a_key_of_ours_in_a_foreign_file_is_checked() -> None:
    key = '{""suite"":""s"",""model"":""' + "m" * 600 + '"",""scale"":"""",""mode"":""i"",'
    key += '""precision"":""p"",""variant"":""v""}'
    data = f'dev,name,batch_size,speedup,torchstone_case\ncpu,short,1,1.5,"{key}"\n'.encode()
    imported = read_bytes(DYNAMO_CSV, data)
    assert imported is not None
    assert list(cases_of(imported)) == ["short"]


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("MAX_FILES", "These are 3 files"),
        ("MAX_FILE_BYTES", "is larger than"),
        ("MAX_ALL_BYTES", "hold more than"),
        ("MAX_ROWS", "there are more than 2 rows"),
    ],
)
def test_limits_hold(
    limit: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text(f"name,speedup\n{name},1.5\n")
    assert len(DYNAMO_CSV.read([tmp_path]).cases) == 3
    monkeypatch.setattr(files, limit, 2)
    with pytest.raises(UsageError, match=says):
        DYNAMO_CSV.read([tmp_path])


def test_the_number_of_records_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(HUD_BYTES)
    monkeypatch.setattr(files, "MAX_ROWS", 2)
    with pytest.raises(UsageError, match="line 3: there are more than 2 records"):
        HUD_V3.read([path])

"""`examples/first_hour.ipynb` runs from top to bottom, and its results show themselves."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.targets.support import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOK = ROOT / "examples" / "first_hour.ipynb"


def executed(tmp_path: Path, variant: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, folder in (("IPYTHONDIR", "ipython"), ("JUPYTER_RUNTIME_DIR", "runtime")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT / "src"), before))))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        source = cell.source.replace('VARIANT = "inductor"', f'VARIANT = "{variant}"')
        cell.source = re.sub(r"budget([= ])[\d.]+", r"budget\g<1>0.2", source)
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    return client.execute()


def outputs(cell: Any, kind: str) -> list[str]:
    found = [one["data"].get(kind, "") for one in cell.outputs if "data" in one]
    return ["".join(text) for text in found if text]


def check(notebook: Any) -> None:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for place in (1, 3, 5, 6):  # the result, the two ways, the magics
        html, text = outputs(cells[place], "text/html"), outputs(cells[place], "text/plain")
        assert any("<table>" in one and "data:image/svg+xml" in one for one in html), place
        assert any(one.startswith("<torchstone result") for one in text), place
    said = "".join(one.get("text", "") for one in cells[2].outputs)
    assert "verdict:" in said
    assert "fp64" in said
    assert "faster" in outputs(cells[3], "text/html")[-1]  # rows one by one against all at once
    report = "".join(one.get("text", "") for one in cells[-1].outputs)
    assert "objects of a session" in report
    errors = [one for cell in cells for one in cell.outputs if one.output_type == "error"]
    assert not errors


# The warnings are those of the libraries around a kernel, in this process.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(executed(tmp_path, "eager+no_grad", monkeypatch))  # no compiler to import


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs_with_inductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(executed(tmp_path, "inductor", monkeypatch))


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)

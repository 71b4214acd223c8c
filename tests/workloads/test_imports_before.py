"""Which libraries of a target may be imported before any of its own code runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchstone.records import ArmSpec, Statement
from torchstone.workloads.target import SUITES, import_named, libraries_ahead

FILE = '''"""A model."""
from __future__ import annotations
import os, json
import torch
import torch.nn as nn
from transformers import BertConfig, BertModel
from timm.models import *
{more}
import numpy
'''
LEADING = ("torch", "torch.nn", "transformers:BertConfig", "transformers:BertModel", "timm.models")


def ahead(folder: Path, text: str, **more: str) -> tuple[str, ...]:
    file = folder / "model.py"
    file.write_text(text)
    return libraries_ahead(ArmSpec("a", f"{file}:make", **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [
        "os.environ['OMP_NUM_THREADS'] = '1'",
        "import helper",
        "from helper.part import x",
        "from . import near",
        "try:\n    import faster\nexcept ImportError:\n    pass",
        "if True:\n    import faster",
    ],
)
def test_nothing_counts_that_code_of_the_targets_comes_before(tmp_path: Path, more: str) -> None:
    (tmp_path / "helper").mkdir()
    assert ahead(tmp_path, FILE.format(more=more)) == LEADING


def test_all_imports_count_where_nothing_comes_between(tmp_path: Path) -> None:
    assert ahead(tmp_path, FILE.format(more="import scipy")) == (*LEADING, "scipy", "numpy")


def test_a_module_beside_the_file_comes_before_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    assert ahead(tmp_path, FILE.format(more="")) == ()


@pytest.mark.parametrize("text", ["import torch)", "x = 1\nimport torch", "", "import os"])
def test_files_with_nothing_to_import_ahead(tmp_path: Path, text: str) -> None:
    assert ahead(tmp_path, text) == ()


def test_a_device_may_not_be_taken_before_a_fork(tmp_path: Path) -> None:
    assert ahead(tmp_path, "import torch", device="cuda") == ()


def test_suites_share_theirs_and_statements_have_none(tmp_path: Path) -> None:
    assert libraries_ahead(ArmSpec("a", "hf:BertForMaskedLM@small")) == SUITES
    assert libraries_ahead(ArmSpec("a", statement=Statement("pass"))) == ()
    assert libraries_ahead(ArmSpec("a", "os.path:join()")) == ()
    assert libraries_ahead(ArmSpec("a", str(tmp_path / "none.py:make"))) == ()


def test_libraries_are_imported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("xml.dom", "xml.dom.minidom"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import_named(("xml.dom:minidom", "json:loads"))
    assert "xml.dom.minidom" in sys.modules

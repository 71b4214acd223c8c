"""Sizes of suite models: one process each, taken up where it stopped, and evaluated by the aim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from suite_sizes import Job, jobs_of, latest, parse, remark, report

from tests.benchmarks.support import run
from torchstone.workloads.suites.huggingface import HUGGINGFACE


def row(model: str = "M", **more: Any) -> dict[str, Any]:
    return {"suite": "hf", "model": model, "scale": "small", "inference_ms": 20.0, **more}


def test_models_are_chosen_by_name_and_pattern() -> None:
    words = ["hf", "-k", "*CausalLM", "--only", "OPTForCausalLM", "BertForMaskedLM"]
    assert jobs_of(HUGGINGFACE, parse(words)) == [Job("hf", "OPTForCausalLM", "small")]
    assert len(jobs_of(HUGGINGFACE, parse(["hf"]))) == len(HUGGINGFACE.models())


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, ""),
        ({"inference_ms": 4.9}, "not within 5 to 200 ms"),
        ({"inference_ms": 201.0}, "not within 5 to 200 ms"),
        ({"inference_ms": 201.0, "scale": "full"}, ""),
        ({"stderr": "a warning"}, "spoke on stderr"),
        ({"training_ms_reason": "the loss is nan"}, "the loss is nan"),
        ({"error": "not supported: no class"}, "not supported: no class"),
    ],
)
def test_what_is_not_as_it_should_be_is_said(found: dict[str, Any], said: str) -> None:
    assert remark(row(**found)) == said


def test_the_last_line_of_a_model_counts() -> None:
    known = latest([row(inference_ms=1.0), row("N"), row(inference_ms=33.0)])
    jobs = [Job("hf", "M", "small"), Job("hf", "N", "small"), Job("hf", "absent", "small")]
    text = report(known, jobs, markdown=True)
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:]] == [
        "hf:M@small",
        "hf:N@small",
    ]
    assert "33" in text


@pytest.mark.slow
def test_a_model_is_measured_once(tmp_path: Path) -> None:
    words = ("hf", "--only", "GPTNeoForSequenceClassification", "--out", str(tmp_path / "a.jsonl"))
    first, second = run("suite_sizes.py", *words), run("suite_sizes.py", *words)
    assert (first.returncode, first.stderr) == (second.returncode, second.stderr) == (0, "")
    (line,) = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    found = json.loads(line)
    assert 0 < found["inference_ms"] < found["training_ms"]
    assert found["parameters"] > 1e6
    assert min(found["torch_s"], found["build_s"]) > 0
    assert found["import_s"] > found["torch_s"]
    assert "stderr" not in found
    assert second.stdout.splitlines() == first.stdout.splitlines()[1:]


@pytest.mark.slow
def test_a_model_that_cannot_be_built_is_a_row(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    words = ("hf", "--only", "GPTNeoForCausalLM", "--scale", "huge", "--out", str(out))
    done = run("suite_sizes.py", *words)
    assert done.returncode == 0, done.stderr
    assert "no scale 'huge'" in json.loads(out.read_text(encoding="utf-8"))["error"]


@pytest.mark.slow
def test_models_of_a_suite_whose_libraries_differ_are_measured(tmp_path: Path) -> None:
    words = ("torchbench", "--only", "lennard_jones", "--out", str(tmp_path / "a.jsonl"))
    done = run("suite_sizes.py", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "a.jsonl").read_text(encoding="utf-8"))
    assert "error" not in found
    assert found["inference_ms"] > 0

"""User suites: TOML and Python files that list targets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.targets.support import ROOT
from torchstone.records import UsageError
from torchstone.workloads import check_target
from torchstone.workloads.suites import files
from torchstone.workloads.suites.files import read_suite_file

TOML = """
name = "mine"

[[model]]
name = "mlp"
target = "models.py:make"
modes = ["inference"]

[[model]]
name = "sum"
target = "models.py:add()"
tier = "full"
family = "arithmetic"

[[model]]
name = "bert"
target = "torchbench:hf_Bert@small"
tier = "standard"
"""
PYTHON = """
NAME = "mine"
MODELS: dict = {
    "mlp": {"target": "models.py:make", "modes": ["inference"]},
    "sum": {"target": "models.py:add()", "tier": "full", "family": "arithmetic"},
    "bert": {"target": "torchbench:hf_Bert@small", "tier": "standard"},
}
raise SystemExit("a suite file is read, never run")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text("def make(): return (abs, (1,))\ndef add(): return 2\n")
    return tmp_path


def refused(path: Path, text: str | bytes, *words: str) -> UsageError:
    """The error of a file with this content; it has the file's name and the given words."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError) as caught:
        read_suite_file(str(path))
    whole = f"{caught.value.message} {caught.value.remedy}"
    assert path.name in whole
    for word in words:
        assert word in whole, whole
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize(("name", "text"), [("s.toml", TOML), ("s.py", PYTHON)])
def test_both_kinds_of_file_say_the_same(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    suite = read_suite_file(str(folder / name))
    assert (suite.name, suite.prefix, suite.scales) == ("mine", "", ())
    mlp, added, bert = suite.models()
    assert (mlp.name, mlp.modes, mlp.tier, mlp.quick_modes) == (
        "mlp",
        ("inference",),
        "quick",
        ("inference",),
    )
    assert (added.name, added.tier, added.family, added.quick_modes) == (
        "sum",
        "full",
        "arithmetic",
        (),
    )
    assert added.modes == ("inference", "training")
    assert bert.target == "torchbench:hf_Bert@small"
    assert mlp.target == f"{folder}/models.py:make"
    assert added.target == f"{folder}/models.py:add()"
    assert check_target(added.target).direct


def test_paths_are_relative_to_the_suite_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = folder / "suites"
    inner.mkdir()
    (inner / "s.toml").write_text('[[model]]\nname = "a"\ntarget = "../models.py:make"\n')
    monkeypatch.chdir(folder)
    assert read_suite_file("suites/s.toml").models()[0].target == "models.py:make"
    (folder / "t.py").write_text(f'MODELS = {{"a": "{folder}/models.py", "b": "models.py:make"}}')
    assert [m.target for m in read_suite_file("t.py").models()] == [
        f"{folder}/models.py",
        "models.py:make",
    ]


def test_paths_from_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    inner = folder / "suites"
    inner.mkdir()
    (inner / "s.py").write_text('MODELS = {"a": "~/models.py", "b": "~/models.py:add()"}')
    assert [m.target for m in read_suite_file("~/suites/s.py").models()] == [
        f"{folder}/models.py",
        f"{folder}/models.py:add()",
    ]


def test_the_name_is_the_files_unless_it_says_another(folder: Path) -> None:
    (folder / "nightly.py").write_text('MODELS = [{"name": "a", "target": "models.py:make"}]')
    assert read_suite_file(str(folder / "nightly.py")).name == "nightly"


def test_a_python_file_is_not_run(folder: Path) -> None:
    (folder / "s.py").write_text(
        'from pathlib import Path\nPath(__file__).with_name("ran").touch()\n'
        'MODELS = {"a": "models.py:make"}\n'
    )
    read_suite_file(str(folder / "s.py"))
    assert not (folder / "ran").exists()


ENTRY = '[[model]]\nname = "a"\ntarget = "models.py:make"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["lists no models", "[[model]]"]),
        ("name = \n", ["is not valid TOML"]),
        ("x = " + "[" * 3000, ["is not valid TOML"]),
        ("[[models]]\n" + ENTRY[10:], ["no key 'models'", "Did you mean model?"]),
        ('[model]\nname = "a"\n', ["model is a dict, not a list"]),
        ("model = [1]\n", ["model 1 is an int"]),
        (ENTRY + 'mode = ["inference"]\n', ["model 'a'", "no key 'mode'", "mean modes"]),
        (ENTRY + ENTRY, ["lists 'a' twice"]),
        ('[[model]]\ntarget = "models.py:make"\n', ["model 1 has no name"]),
        ('[[model]]\nname = "a"\n', ["model 'a' has no target"]),
        ('[[model]]\nname = 3\ntarget = "models.py:make"\n', ["the name is an int, not text"]),
        ('[[model]]\nname = " a"\ntarget = "models.py:make"\n', ["cannot be ' a'"]),
        ('[[model]]\nname = "a\\nb"\ntarget = "models.py:make"\n', ["cannot be 'a\\nb'"]),
        ('[[model]]\nname = "a"\ntarget = "modules.py:make"\n', ["no file", "mean models.py"]),
        ('[[model]]\nname = "a"\ntarget = "models.py:makes"\n', ["has no 'makes'", "mean"]),
        ('[[model]]\nname = "a"\ntarget = "timm:resnet81"\n', ["no model 'resnet81'", "resnet18"]),
        ('[[model]]\nname = "a"\ntarget = "??"\n', ["is not a target"]),
        (ENTRY + 'tier = "fast"\n', ["no tier 'fast'", "quick, standard, full"]),
        (ENTRY + "modes = []\n", ["modes is not a list of modes"]),
        (ENTRY + 'modes = "training"\n', ["modes is not a list of modes"]),
        (ENTRY + 'modes = ["train"]\n', ["no mode 'train'", "inference, training"]),
        ('name = "timm"\n' + ENTRY, ["there is a suite timm already"]),
        ('name = "huggingface"\n' + ENTRY, ["there is a suite huggingface already"]),
        ("name = 1\n" + ENTRY, ["the suite's name is an int"]),
        (b'name = "\xff"\n', ["not UTF-8"]),
        ("#" * (files.MOST_BYTES + 1), ["larger than 1024 KiB"]),
    ],
)
def test_what_is_wrong_with_a_toml_file(folder: Path, text: str | bytes, words: list[str]) -> None:
    refused(folder / "s.toml", text, *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["has no MODELS"]),
        ("MODELS = {", ["is not valid Python (line 1)"]),
        ("MODELS = (" * 300, ["is not valid Python"]),
        ("MODELS = {}", ["lists no models"]),
        ("MODELS = 3", ["MODELS is an int, not a dict or a list"]),
        ("MODELS = ['models.py:make']", ["model 1 is a str"]),
        ("MODELS = dict(a='models.py:make')", ["MODELS (line 1) is computed", "literal"]),
        ("\nMODELS = {n: 'models.py:make' for n in 'ab'}", ["MODELS (line 2) is computed"]),
        ("NAME = str(1)\nMODELS = {'a': 'models.py:make'}", ["NAME (line 1) is computed"]),
        ("MODELS = {'a': 'models.py:make', 'a': 'models.py:add()'}", ["lists 'a' twice"]),
        ("MODELS = {'a': {'name': 'b', 'target': 'models.py:make'}}", ["its name twice"]),
        ("MODELS = {1: 'models.py:make'}", ["the name is an int"]),
        ("MODELS = {'a': 3}", ["target is an int, not text"]),
        ("MODELS = {'a': {'targets': 'models.py:make'}}", ["no key 'targets'", "mean target"]),
    ],
)
def test_what_is_wrong_with_a_python_file(folder: Path, text: str, words: list[str]) -> None:
    refused(folder / "s.py", text, *words)


def test_too_many_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_MODELS", 1)
    refused(folder / "s.py", "MODELS = {'a': 'models.py', 'b': 'models.py'}", "lists 2 models")


def test_files_that_cannot_be_read(folder: Path) -> None:
    (folder / "suite.toml").write_text(TOML)
    for path, words in (
        (folder / "suit.toml", ["There is no file", "Did you mean suite.toml?"]),
        (folder / "gone" / "s.toml", ["There is no file", "There is no folder"]),
        (folder / "suite.json", ["neither .toml nor .py"]),
    ):
        with pytest.raises(UsageError) as caught:
            read_suite_file(str(path))
        for word in words:
            assert word in f"{caught.value.message} {caught.value.remedy}"
    (folder / "dir.toml").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        read_suite_file(str(folder / "dir.toml"))


def test_a_python_without_toml_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tomllib", "tomli"):
        monkeypatch.setitem(sys.modules, name, None)
    refused(folder / "s.toml", TOML, "no TOML reader", "Install tomli", "MODELS = {")


@given(st.text(max_size=200), st.sampled_from(["s.toml", "s.py"]))
def test_any_text_is_a_suite_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, text: str, name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UsageError):
        read_suite_file(str(path))


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "target", "modes", "tier", "x"]), inner)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_any_literal_is_a_suite_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.py"
    path.write_text(f"MODELS = {value!r}\n", encoding="utf-8")
    try:
        assert read_suite_file(str(path)).models()
    except UsageError:
        return


def test_the_example_is_a_suite() -> None:
    suite = read_suite_file(str(ROOT / "examples" / "suite.toml"))
    assert suite.name == "examples"
    assert {model.name for model in suite.models()} >= {"two-layer", "fused", "unfused"}

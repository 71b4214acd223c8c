"""What BASE and NEW mean: one run, or an error that says what else it could be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from torchstone.records import RunHead, UsageError
from torchstone.track import is_file, resolve

OLD = "aaaa1111" * 5
NEW = "bbbb2222" * 5


def head(run_id: str, **parts: object) -> RunHead:
    made = RunHead(
        run_id,
        "2026-11-15T02:00:00+00:00",
        label="nightly",
        commit=OLD,
        branch="main",
        machine_id="9f3c55aa01",
        machine="Intel(R) Xeon(R) Platinum 8370C",
        torch="2.13.0+cpu",
        suites=("timm",),
    )
    return replace(made, **parts)  # type: ignore[arg-type]


HEADS = [
    head("r5", commit=NEW, label="pr-7", branch="feature", torch="2.14.0.dev20261101"),
    head("r4", commit=NEW, label="pr-7", branch="feature", torch="2.14.0.dev20261101"),
    head("r3", suites=("huggingface",), label="", machine_id="77777777", machine="ARM Neoverse"),
    head("r2"),
    head("q1", label="first", branch="old"),
]


@pytest.mark.parametrize(
    ("word", "kind", "run"),
    [
        ("r4", "run", "r4"),
        ("q", "run", "q1"),
        ("run:q", "run", "q1"),
        ("first", "label", "q1"),
        ("label:first", "label", "q1"),
        ("nightly", "label", "r2"),
        ("aaaa1", "commit", "r3"),
        ("commit:AAAA1111", "commit", "r3"),
        (NEW, "commit", "r5"),
        ("feature", "branch", "r5"),
        ("branch:main", "branch", "r3"),
        ("2.13", "torch", "r3"),
        ("2.13.0", "torch", "r3"),
        ("torch:2.14.0.dev20261101", "torch", "r5"),
        ("9f3c55", "machine", "r5"),
        ("machine:neoverse", "machine", "r3"),
        ("ARM Neoverse", "machine", "r3"),
        ("latest", "latest", "r5"),
        ("last", "latest", "r5"),
        ("latest~1", "latest", "r4"),
    ],
)
def test_a_word_means_the_newest_run_of_what_it_names(word: str, kind: str, run: str) -> None:
    found = resolve(word, HEADS)
    assert (found.kind, found.run_id) == (kind, run)


def test_several_runs_of_a_commit_or_a_label_are_marked() -> None:
    assert resolve("commit:bbbb", HEADS).note == (
        "run r5 is the newest of 2 of commit bbbb2222bb; older: r4"
    )
    assert "label 'pr-7'" in resolve("pr-7", HEADS).note
    assert resolve("first", HEADS).note == ""
    assert resolve("branch:feature", HEADS).note == ""


def test_latest_is_counted_among_runs_like_the_new_one() -> None:
    assert resolve("latest", HEADS, HEADS[3]).run_id == "r2"
    assert resolve("latest", HEADS, HEADS[2]).run_id == "r3"
    with pytest.raises(UsageError, match=r"no latest~1: there is 1 run of the machine"):
        resolve("latest~1", HEADS, HEADS[2])
    with pytest.raises(UsageError, match=r"no latest~9: there are 2 runs"):
        resolve("latest~9", HEADS)
    with pytest.raises(UsageError, match="there is no run of"):
        resolve("latest", HEADS, head("elsewhere", machine_id="other"))


def test_latest_passes_over_what_the_dashboard_passes_over() -> None:
    done = {"outcomes": {"ok": 3}}
    heads = [
        head("running", state="running", **done),
        head("n3", **done),
        head("broken", state="interrupted", **done),
        head("theirs", origin="hud.json", **done),
        head("other", branch="fix", **done),
        head("empty", state="interrupted"),
        head("n1", **done),
    ]
    assert resolve("latest", heads).run_id == "n3"
    assert resolve("latest~1", heads).run_id == "n1"
    assert resolve("latest~1", heads, heads[1]).run_id == "n1"
    assert resolve("latest", heads[2:3]).run_id == "broken"  # better than none


def test_a_word_that_means_several_things_is_an_error_that_lists_them() -> None:
    heads = [head("r9", label="main", branch="x"), *HEADS]
    with pytest.raises(UsageError) as caught:
        resolve("main", heads)
    assert "label:main (run r9)" in caught.value.message
    assert "branch:main (run r3)" in caught.value.message
    assert resolve("label:main", heads).run_id == "r9"
    with pytest.raises(UsageError, match=r"run:r5 .*run:r4 .*run:r3"):
        resolve("r", HEADS)
    with pytest.raises(UsageError, match=r"torch:2\.14\.0\.dev20261101 .*torch:2\.14\.0\+cpu"):
        resolve("2.14", [*HEADS, head("s1", torch="2.14.0+cpu")])


def test_a_whole_id_is_that_run_whatever_else_is_called_so() -> None:
    heads = [head("r9", label="r2"), *HEADS]
    assert resolve("r2", heads).run_id == "r2"
    assert resolve("label:r2", heads).run_id == "r9"


def test_a_word_may_ask_what_differs() -> None:
    assert resolve("torch:2.13", HEADS).across == {"torch"}
    assert resolve("machine:neoverse", HEADS).across == {"machines"}
    assert resolve("branch:main", HEADS).across == frozenset()


def test_where_no_word_is_a_file_none_is_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("{}")
    assert resolve(str(path), HEADS).kind == "file"
    for word in (str(path), f"file:{path}"):
        with pytest.raises(UsageError) as caught:
            resolve(word, HEADS, files=False)
        assert "such a file" not in caught.value.message


def test_several_names_of_one_run_are_no_ambiguity() -> None:
    found = resolve("same", [head("r9", label="same", branch="same"), *HEADS])
    assert found.run_id == "r9"


def test_an_exact_name_wins_over_one_that_only_begins_so() -> None:
    assert resolve("r4", [*HEADS, head("r44")]).run_id == "r4"
    assert resolve("torch:2.13", [*HEADS, head("s1", torch="2.13")]).run_id == "s1"


def test_a_version_is_not_the_beginning_of_another() -> None:
    with pytest.raises(UsageError):
        resolve("torch:2.1", HEADS)
    with pytest.raises(UsageError):
        resolve("torch:2.13.0+c", HEADS)


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("nigthly", "label:nightly"),
        ("fature", "branch:feature"),
        ("commit:aaab1", f"commit:{OLD}"),
        ("label:fist", "label:first"),
    ],
)
def test_a_slip_is_answered_with_the_nearest(word: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(word, HEADS)
    assert near in caught.value.message
    assert "torchstone list runs" in caught.value.remedy


@pytest.mark.parametrize("word", ["", "a\x1b[2Jb", "\n", "zzzzzz", "label:", "aaa"])
def test_nonsense_is_an_error_for_people(word: str) -> None:
    with pytest.raises(UsageError):
        resolve(word, HEADS)


def test_without_any_run() -> None:
    with pytest.raises(UsageError, match="No run is stored yet"):
        resolve("latest", [])


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.json").write_text("{}")
    (tmp_path / "main").write_text("{}")
    assert is_file("base.json")
    assert resolve("base.json", []).path == "base.json"
    assert resolve(f"file:{tmp_path}/main", []).path == f"{tmp_path}/main"
    # A file that happens to be called like a branch is not in the way.
    assert not is_file("main")
    assert resolve("main", HEADS).kind == "branch"
    with pytest.raises(UsageError, match=r"no file .nothing\.json."):
        resolve("file:nothing.json", HEADS)
    with pytest.raises(UsageError, match="nor such a file"):
        resolve("nothing.json", HEADS)
    assert not is_file("label:x/y.json")

"""The page of a profile: what is in it, that nothing breaks out, and what it refuses."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.show.synthetic_profile import (
    HOSTILE_NAMES,
    counted,
    full,
    grown,
    hostile,
    sampled,
    timed,
    training,
)
from torchstone.records import CallTree, Profile, Spans, UsageError
from torchstone.show import bundle as bundling
from torchstone.show.profile_html import (
    LONGEST_TEXT,
    MOST_EXACT,
    Columns,
    profile_html,
    profile_json,
)
from torchstone.show.profile_text import call_tree, top_functions


class Page(HTMLParser):
    """The elements of a page, and the texts of its scripts, styles and title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        self._inside = tag
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in self.texts:
            self.texts[self._inside][-1] += data


def column(what: dict[str, Any], body: bytes) -> list[float]:
    """A second reader of the format, written from its description alone."""
    what = what["column"]
    count, at = what["count"], what["at"]
    if what["kind"] == "floats":
        import struct

        planes = [body[at + k * count : at + (k + 1) * count] for k in range(8)]
        return [struct.unpack("<d", bytes(p[i] for p in planes))[0] for i in range(count)]
    values, before = [], 0
    for i in range(count):
        stored = sum(body[at + k * count + i] << (8 * k) for k in range(what["width"]))
        value = what["low"] + stored + (before if what["kind"] == "steps" else 0)
        values.append(value)
        before = value
    return values


@given(st.lists(st.integers(-MOST_EXACT, MOST_EXACT), max_size=40), st.booleans())
def test_integers_come_back(values: list[int], growing: bool) -> None:
    if growing:
        values = sorted(value // 4 for value in values)
    columns = Columns()
    what = columns.integers(values, growing=growing)
    assert column(what, bytes(columns.body)) == values
    wide = any(abs(value) >= 2**31 for value in values)
    assert what["column"]["form"] == ("f8" if wide else "i4")


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40))
def test_floats_come_back_to_the_digit(values: list[float]) -> None:
    columns = Columns()
    what = columns.numbers(values)
    finite = [value if abs(value) < float("inf") else 0.0 for value in values]
    assert column(what, bytes(columns.body)) == finite


def test_integers_that_javascript_cannot_hold_are_cut() -> None:
    columns = Columns()
    what = columns.integers([2**80, -(2**80), 1])
    assert column(what, bytes(columns.body)) == [MOST_EXACT, -MOST_EXACT, 1]


@pytest.mark.parametrize(
    "profile", [training(), sampled(), counted(), timed(), full(), hostile(), grown(3000)],
    ids=lambda profile: profile.id[:12],
)  # fmt: skip
def test_the_page_is_whole_and_locked(profile: Profile) -> None:
    text = profile_html([profile], "A title")
    page = Page(text)
    assert page.tags.count("script") == 2
    assert page.texts["title"] == ["A title"]
    policy = next(a["content"] for t, a in page.attributes if t == "meta" and "http-equiv" in a)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    for kind in ("script", "style"):
        digest = hashlib.sha256(page.texts[kind][-1].encode()).digest()
        assert rules[f"{kind}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"
    assert not [a for _, a in page.attributes if a.keys() & {"src", "style", "onclick"}]
    assert "http://" not in text
    assert "https://" not in text


def head_of(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if "head" in data:
        return dict(data["head"])
    return unpacked(text)[0]


def unpacked(text: str) -> tuple[dict[str, Any], bytes]:
    """Head and body of compressed data."""
    whole = gzip.decompress(base64.b64decode(json.loads(text)["gzip"]))
    length = int.from_bytes(whole[:4], "little")
    return json.loads(whole[4 : 4 + length]), whole[4 + length :]


def test_hostile_texts_stay_inside_the_data() -> None:
    text = profile_html([hostile()])
    page = Page(text)
    assert not {"img", "b", "iframe"} & set(page.tags)
    assert not page.texts["title"][0].startswith("<b")
    data = page.texts["script"][0]
    assert not set("<>&") & set(data)
    strings = head_of(data)["strings"]
    for name in HOSTILE_NAMES[:4]:
        assert name in strings
    assert max(map(len, strings)) <= LONGEST_TEXT
    assert all(text.isprintable() for text in strings)


def test_large_data_are_compressed_and_the_same_every_time() -> None:
    made = grown(20_000)
    text = profile_json([made], "x")
    assert "gzip" in text[:40]
    assert text == profile_json([made], "x")
    head, body = unpacked(text)
    tree = head["profiles"][0]["tree"]
    assert made.tree is not None
    assert tuple(column(tree["parents"], body)) == made.tree.parents
    assert tuple(column(tree["own"], body)) == made.tree.own


def test_spans_are_few_bytes_each() -> None:
    count = 50_000
    page = profile_html([timed(count)])
    empty = profile_html([timed(40)])
    assert (len(page) - len(empty)) / count < 10


def test_what_is_said_without_a_script() -> None:
    text = profile_html([full(), counted()], "Both")
    plain = text[text.index("<noscript>") : text.index("</noscript>")]
    assert plain.count("<table>") == 2
    for said in ("gemm_kernel", "3.00 s", "30 %", "1.23×", "time stamp of zero", "cProfile"):
        assert said in plain
    assert "<td>140</td>" in plain


def test_the_title_is_the_label_if_none_is_given() -> None:
    assert "<title>eager</title>" in profile_html([training()])


def test_the_title_of_several_ways_is_what_they_are_of() -> None:
    first = replace(counted(), label="net.py:make (count)", how="count")
    second = replace(sampled(), label="net.py:make (sample)", how="sample")
    assert Page(profile_html([first, second])).texts["title"] == ["net.py:make"]
    other = replace(second, label="other.py:make (sample)")
    assert Page(profile_html([first, other])).texts["title"] == ["net.py:make · other.py:make"]


def test_no_profile_is_refused() -> None:
    with pytest.raises(UsageError, match="no profile"):
        profile_html([])


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (CallTree("seconds", (-1, 2, 1), (0, 0, 0), (1.0, 1.0, 1.0), (0, 0, 0)), "parent"),
        (CallTree("seconds", (-1, 0), (0,), (1.0, 1.0), (0, 0)), "unequal"),
        (CallTree("seconds", (-1,), (99,), (1.0,), (0,)), "frame"),
        (CallTree("seconds", (-1,), (0,), (1.0,), (-1,)), "thread"),
    ],
)
def test_a_broken_tree_is_refused(broken: CallTree, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        profile_html([replace(training(), tree=broken)])


@pytest.mark.parametrize("frames", [(99,), (0, 0), (-1,)])
def test_broken_spans_are_refused(frames: tuple[int, ...]) -> None:
    broken = Spans(frames, (0,), (0,), (1,))
    for profile in (training(), replace(training(), tree=None)):
        with pytest.raises(UsageError, match="span"):
            profile_html([replace(profile, spans=broken)])


def test_top_functions_of_a_tree() -> None:
    found = {row.frame.name: row for row in top_functions(training(), training().tree)}
    assert (found["forward"].own, found["forward"].total) == (0.5, 4.0)
    assert (found["train"].own, found["train"].total) == (0.5, 7.5)
    assert found["gemm_kernel"].calls == 100


def test_a_recursion_is_counted_once() -> None:
    tree = CallTree("seconds", (-1, 0, 1, 2), (1, 2, 1, 2), (1.0, 1.0, 1.0, 1.0), (0, 0, 0, 0))
    profile = replace(training(), tree=tree)
    rows = {row.frame.name: row for row in top_functions(profile, tree)}
    assert (rows["train"].own, rows["train"].total) == (2.0, 4.0)
    assert (rows["forward"].own, rows["forward"].total) == (2.0, 3.0)


def test_counted_functions_are_exact() -> None:
    rows = top_functions(counted(), counted().tree, 2)
    assert [(row.frame.name, row.own, row.total, row.calls) for row in rows] == [
        ("forward", 4.0, 4.0, 140),
        ("backward", 3.0, 3.0, 100),
    ]


def test_spans_give_a_tree() -> None:
    second = 10**9
    spans = Spans(
        (1, 2, 2, 3),
        (0, 0, 0, 0),
        (0, 0, second, second),
        (3 * second, second, second, second // 2),
    )
    tree = call_tree(replace(training(), tree=None, spans=spans))
    assert tree is not None
    assert tree.own == (1.0, 1.5, 0.5)
    assert tree.calls == (1, 2, 1)


def test_modules_are_bundled_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    script = bundling.bundle("profile", "app", "start")
    assert script.rstrip().endswith("module_app.start();")
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    assert script.index("const module_dom") < script.index("const module_app")
    assert script.count("const module_dom =") == 1


@pytest.mark.parametrize(
    ("modules", "why"),
    [
        ({"a": 'import { b } from "./b.js";\n', "b": 'import { a } from "./a.js";\n'}, "ring"),
        ({"a": 'import b from "./b.js";\n'}, "cannot be bundled"),
        ({"a": "export default 3;\n"}, "cannot be bundled"),
        ({"a": 'import { b as c } from "./b.js";\n', "b": "export const b = 1;\n"}, "another name"),
        ({"a": 'export const a = "</script>";\n'}, "ends its own"),
    ],
)
def test_what_cannot_be_bundled_is_refused(
    monkeypatch: pytest.MonkeyPatch, modules: dict[str, str], why: str
) -> None:
    monkeypatch.setattr(bundling, "asset", lambda _, name: modules[Path(name).stem])
    with pytest.raises(ValueError, match=why):
        bundling.bundle("x", "a", "a")


def test_no_script_of_ours_makes_markup_or_fetches() -> None:
    """Names are untrusted: text goes in as text, and nothing leaves the page."""
    folder = Path(bundling.__file__).parent / "assets" / "profile"
    modules = sorted(folder.glob("*.js"))
    assert len(modules) > 10
    for path in modules:
        source = path.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in source, path.name
        for word in ("fetch(", "XMLHttpRequest", "WebSocket", "new Function(", "import("):
            assert word not in source, path.name
        assert len(source.splitlines()) <= 400, path.name

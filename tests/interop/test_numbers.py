"""Any number of any file, in any format that is read, may be infinite, not a number or enormous:
that is imported and shown, or refused in a sentence."""

from __future__ import annotations

import json
import marshal
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.interop.support import FIXTURES, HUGGINGFACE, TORCHBENCH
from tests.interop.test_histories import GOOGLE, PYPERF, PYTEST, write_asv
from tests.monitor.test_compare import training
from tests.profile.support import traced
from tests.show.reports import (
    check_report,
    regressions_markdown,
    regressions_report,
    run_markdown,
    run_report,
)
from tests.show.test_check import REPORT
from torchstone.interop.base import FORMATS, find_format
from torchstone.interop.histories import READERS
from torchstone.lab.compare_runs import compare_runs
from torchstone.lab.regressions import SeriesRequest, history, import_history, regressions
from torchstone.monitor.journal import open_record
from torchstone.monitor.views import compare, view_of
from torchstone.profile import read_profile
from torchstone.profile.formats import base as profiles
from torchstone.records import TorchstoneError
from torchstone.show.blocks import render
from torchstone.show.check import check_dumps, check_loads, check_markdown
from torchstone.show.monitor import compare_report, top_report, view_report
from torchstone.show.monitor import dumps as monitor_dumps
from torchstone.show.profile_html import profile_html
from torchstone.show.profile_text import profile_text
from torchstone.show.regressions import (
    history_document,
    history_markdown,
    history_report,
    regressions_document,
)
from torchstone.show.run_data import run_csv, run_dumps
from torchstone.stats import summarise
from torchstone.store import open_store
from torchstone.track.regressions import changes_of
from torchstone.web.query import ServerLinks, parse
from torchstone.web.registry import PAGES
from torchstone.web.render import SiteInfo, html
from torchstone.web.sources import DataAccess

ODD = (
    *("Infinity", "-Infinity", "NaN", "inf", "-inf", "nan", "1e308", "-1e308", "1e999", "-1e999"),
    *("1e-320", "-1", "0", "-0.0", "9" * 400, "9007199254740993", "18446744073709551616", "1e18"),
)
NUMBER = re.compile(rb"(?<![\w.\"])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.\"])")
SAMPLES = {
    "dynamo-csv": f"{HUGGINGFACE}_performance.csv",
    "hud-v3": f"{TORCHBENCH}_performance.json",
}
"""Of each format a file with its numbers. A new format needs one here."""


def test_every_format_is_tried() -> None:
    assert set(SAMPLES) == set(FORMATS.by_name())


def spoiled(data: bytes, seed: int, share: float) -> bytes:
    """The text with so many of its numbers made odd; at least one."""
    chance = random.Random(seed)
    places = list(NUMBER.finditer(data))
    chosen = [one for one in places if chance.random() < share] or [chance.choice(places)]
    for one in reversed(chosen):
        data = data[: one.start()] + chance.choice(ODD).encode() + data[one.end() :]
    return data


def spoiled_pstats(data: bytes, seed: int, share: float) -> bytes:
    """Of a file that is no text: its numbers are objects."""
    chance = random.Random(seed)
    odd: list[Any] = [float(word) for word in ODD[:15]] + [-1, 0, 2**63, 2**200]

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {walk_key(key): walk(of) for key, of in value.items()}
        if isinstance(value, tuple):
            return tuple(walk(one) for one in value)
        if isinstance(value, (int, float)) and chance.random() < share:
            return chance.choice(odd)
        return value

    def walk_key(key: Any) -> Any:
        return walk(key) if isinstance(key, tuple) else key

    return marshal.dumps(walk(marshal.loads(data)))  # our own bytes


def check_sentence(refused: TorchstoneError) -> None:
    assert refused.message.endswith(".")


drawn = given(seed=st.integers(0, 2**32), share=st.sampled_from([0.0, 0.02, 0.3, 1.0]))
SPOIL: dict[str, Callable[[bytes, int, float], bytes]] = {"pstats": spoiled_pstats}


@pytest.mark.parametrize("name", sorted(SAMPLES))
@settings(max_examples=15, deadline=None)
@drawn
@example(seed=1, share=1.0)
def test_an_import_is_shown_or_refused(name: str, seed: int, share: float) -> None:
    sample = FIXTURES / SAMPLES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, sample.name)
        path.write_bytes(spoiled(sample.read_bytes(), seed, share))
        try:
            imported = find_format(name).read([path])
            with open_store(str(Path(folder, "x.db"))) as store:
                kept = store.import_run(imported.run, imported.cases, name)
                view = store.run_view(kept.id)
            compare_runs(kept.id, kept.id, str(Path(folder, "x.db")))
        except TorchstoneError as refused:
            check_sentence(refused)
            return
        summaries = summarise(view.complete)
        for text in (
            run_report(view, summaries),
            run_markdown(view, summaries),
            run_csv(view),
            run_dumps(view, summaries),
        ):
            assert text
        for form in FORMATS.by_name():
            find_format(form).write(view)


@pytest.mark.parametrize("name", sorted(profiles.known_formats()))
@settings(max_examples=15, deadline=None)
@drawn
@example(seed=1, share=1.0)
@example(seed=141, share=0.02)
def test_a_profile_is_shown_or_refused(name: str, seed: int, share: float) -> None:
    form: Any = profiles.known_formats()[name].load()
    data = SPOIL.get(name, spoiled)(form.write(traced()), seed, share)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "spoiled")
        path.write_bytes(data)
        try:
            profile = read_profile(path, name)
            assert profile_text(profile)
            assert profile_html([profile])
            for other in profiles.known_formats().values():
                other.load().write(profile)
        except TorchstoneError as refused:
            check_sentence(refused)


HISTORY_FILES: dict[str, Any] = {
    "pyperf": PYPERF,
    "pytest-benchmark": PYTEST,
    "google-benchmark": GOOGLE,
}


def test_every_history_is_tried() -> None:
    assert {"asv", *HISTORY_FILES} == set(READERS)


def spoiled_history(folder: Path, tool: str, seed: int, share: float) -> Path:
    """Files of a dozen runs of that tool, with odd numbers in all of them."""
    if tool == "asv":
        root = write_asv(folder, commits=12, step=6)
        every = sorted(root.rglob("*-py3.11.json"))
    else:
        root = folder / "files"
        root.mkdir()
        every = [root / f"{number}.json" for number in range(12)]
        for number, path in enumerate(every):
            text = json.dumps(HISTORY_FILES[tool]).replace("2026-01", f"2026-{number + 1:02}")
            path.write_text(text)
    for number, path in enumerate(every):
        path.write_bytes(spoiled(path.read_bytes(), seed + number, share))
    return root


@pytest.mark.parametrize("tool", sorted(READERS))
@settings(max_examples=15, deadline=None)
@drawn
@example(seed=1, share=1.0)
def test_a_history_is_shown_or_refused(tool: str, seed: int, share: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, db = spoiled_history(Path(folder), tool, seed, share), str(Path(folder, "x.db"))
        try:
            import_history(tool, [str(path)], "", db)
            lines = history(SeriesRequest(), db)
            changes = changes_of(lines, 0.03)
            report = regressions(SeriesRequest(), db, 0.03)
        except TorchstoneError as refused:
            check_sentence(refused)
            return
        for text in (
            history_report(lines, changes),
            history_markdown(lines, changes),
            regressions_report(report, everything=True),
            regressions_markdown(report, everything=True),
        ):
            assert text
        for document in (history_document(lines, changes), regressions_document(report)):
            json.dumps(document, allow_nan=False)
        with open_store(db, read_only=True) as store:
            source = DataAccess(store)
            for name, ident in (("regressions", ""), ("imported", "")):
                page = PAGES[name].view(source, parse(()), ident)
                assert html(page, ServerLinks("x"), SiteInfo("x"))


@settings(max_examples=40, deadline=None)
@drawn
@example(seed=1, share=1.0)
def test_a_report_of_check_is_shown_or_refused(seed: int, share: float) -> None:
    text = spoiled(check_dumps(REPORT, 1).encode(), seed, share).decode()
    try:
        report = check_loads(text)
    except TorchstoneError as refused:
        check_sentence(refused)
        return
    assert check_report(report, 1, width=90)
    assert check_markdown(report, 1)
    assert check_loads(check_dumps(report, 1)) == report


@settings(max_examples=15, deadline=None)
@drawn
@example(seed=1, share=1.0)
def test_the_record_of_a_monitor_is_shown(seed: int, share: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = [training(folder / one, 40, seed=place) for place, one in enumerate("ab")]
        for record in records:
            file = record.ranks[0].path
            file.write_bytes(spoiled(file.read_bytes(), seed, share))
        first, second = (open_record(record.folder) for record in records)
        try:
            assert render(view_report(view_of(first)))
            assert render(top_report([view_of(first), view_of(second)], 2000.0))
            assert monitor_dumps([view_of(first)])
            assert render(compare_report(compare(first, second)))
        except TorchstoneError as refused:
            check_sentence(refused)

"""Any number of any file, in any format that is read, may be infinite, not a number or enormous:
that is imported and shown, or refused in a sentence."""

from __future__ import annotations

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
from tests.profile.support import traced
from torchstone.interop.base import FORMATS, find_format
from torchstone.lab.compare_runs import compare_runs
from torchstone.profile import read_profile
from torchstone.profile import registry as profiles
from torchstone.records import TorchstoneError
from torchstone.show.profile_html import profile_html
from torchstone.show.profile_text import profile_text
from torchstone.show.run import run_markdown, run_report
from torchstone.show.run_data import run_csv, run_dumps
from torchstone.stats import summarise
from torchstone.store import open_store

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

"""A profile as SVG and as terminal text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tests.show.synthetic_profile import (
    HOSTILE_NAME,
    counted,
    estimate,
    full,
    grown,
    hostile,
    sampled,
    timed,
    training,
    tree,
)
from torchstone.records import CallTree, Cost, Frame, Profile, Sampling, UsageError
from torchstone.show.profile_html import MARGIN, MOST_ROWS, WIDTH, profile_svg
from torchstone.show.profile_text import cost_words, profile_text
from torchstone.show.table import cells

SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg: str) -> dict[str, tuple[float, float, float, str]]:
    """Left edge, row from the bottom, width and tip of each box, by name."""
    root = ET.fromstring(svg)
    found = {}
    groups = list(root.iter(SVG + "g"))
    lowest = max(float(group[1].attrib["y"]) for group in groups)
    for group in groups:
        tip, rect = group[0].text or "", group[1].attrib
        name = re.split(r" \(|: ", tip)[0]
        row = (lowest - float(rect["y"])) / 18
        found[name] = (float(rect["x"]), row, float(rect["width"]), tip)
    return found


def test_boxes_are_as_wide_as_their_shares() -> None:
    found = boxes(profile_svg(training()))
    whole = WIDTH - 2 * MARGIN
    for name, share, row in (("all", 1.0, 0), ("train", 0.75, 3), ("forward", 0.4, 4)):
        assert found[name][2] == pytest.approx(whole * share, abs=1)
        assert found[name][1] == row
    assert found["backward"][0] == pytest.approx(MARGIN + whole * 0.4, abs=1)
    assert "4.00 s, 40 %; 500 ms by itself" in found["forward"][3]


def test_alike_paths_are_one_box() -> None:
    twice = CallTree("seconds", (-1, 0, 0), (0, 1, 1), (1.0, 2.0, 3.0), (0, 0, 0))
    svg = profile_svg(replace(training(), tree=twice))
    assert svg.count("<title>train") == 1
    assert "5.00 s, 83 %" in boxes(svg)["train"][3]


def test_the_picture_is_harmless_and_stands_alone() -> None:
    svg = profile_svg(hostile())
    root = ET.fromstring(svg)
    assert {element.tag for element in root.iter()} <= {
        SVG + tag for tag in ("svg", "title", "style", "rect", "text", "g")
    }
    assert HOSTILE_NAME in [element.text for element in root.iter(SVG + "text")]
    assert "\x1b" not in svg
    assert "\u202e" not in svg
    assert svg.count("http") == 1  # the namespace
    assert "url(" not in svg


def test_pictures_of_large_and_deep_profiles_are_bounded() -> None:
    svg = profile_svg(grown(20_000))
    assert 200 < svg.count("<rect") < 20_000
    deep = 3000
    line = CallTree("seconds", tuple(range(-1, deep - 1)), (0,) * deep, (1.0,) * deep, (0,) * deep)
    root = ET.fromstring(profile_svg(replace(training(), tree=line)))
    assert float(root.attrib["height"]) < MOST_ROWS * 18 + 200


def test_spans_can_be_drawn_and_nothing_cannot() -> None:
    assert "load_batch" in boxes(profile_svg(timed()))
    with pytest.raises(UsageError, match="no call paths"):
        profile_svg(replace(training(), tree=None))


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize(
    "profile", [training(), sampled(), counted(), timed(), full(), hostile()],
    ids=lambda profile: profile.id[:12],
)  # fmt: skip
def test_the_text_fits_and_is_plain(profile: Profile, width: int, unicode: bool) -> None:
    text = profile_text(profile, width=width, unicode=unicode)
    assert max(cells(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    assert unicode or text.isascii()


def test_the_text_tells_what_matters() -> None:
    text = profile_text(full())
    for said in (
        "profile of full", "torch.profiler", "gemm_kernel", "3.00 s", "30 %", "peak 504 MiB",
        "float32[1024, 1024]", "no hardware counters", "1.23×", "time stamp of zero",
        "named by number",
    ):  # fmt: skip
        assert said in text
    assert "\x1b[" in profile_text(full(), color=True)


def test_samples_have_intervals_and_counts_have_none() -> None:
    text = profile_text(sampled())
    assert "27–33 %" in text
    assert "1,000 every 10.0 ms, wall clock" in text
    assert "3 more held up by native code, their time counted" in text
    assert "3 lost" in profile_text(replace(sampled(), tool="another"))
    told = replace(sampled(), sampling=Sampling(1000, 0.0, "unknown"))
    assert "1,000, unknown clock" in profile_text(told)
    assert "95 %" not in profile_text(counted())
    assert "call paths are estimated" in profile_text(counted())


def test_functions_come_in_the_order_of_their_own_share() -> None:
    lines = profile_text(training()).splitlines()
    names = [line.split()[0] for line in lines if re.search(r"\d s|ms", line) and "%" in line]
    assert names[:2] == ["gemm_kernel", "backward"]
    assert names[-1] == "load_batch"
    few = profile_text(training(), top=2)
    assert "load_batch" not in few


def test_bytes_and_samples_are_told_in_their_unit() -> None:
    assert "3.00 MiB" in profile_text(replace(training(), tree=tree("bytes", 2.0**20)))
    assert re.search(r"gemm_kernel +300 ", profile_text(sampled()))


def test_cost_is_told_beside_its_control() -> None:
    dear = Cost(estimate(1.5, 0.1), estimate(1.0, 0.05), 1.0, 1.5)
    free = Cost(estimate(1.02, 0.1), estimate(1.0, 0.05), 1.0, 1.02)
    assert "1.50× (1.40–1.60)" in cost_words(dear)
    assert "told apart" not in cost_words(dear)
    assert "cannot be told apart" in cost_words(free)


def imported() -> Profile:
    """Half of the time under the machinery of imports, and two functions of one name."""
    frames = (
        Frame("<module>", "train.py", 1),
        Frame("_find_and_load", "<frozen importlib._bootstrap>", 1165),
        Frame("<module>", "/lib/torch/__init__.py", 1),
        Frame("forward", "/work/net.py", 6),
        Frame("forward", "/lib/torch/nn/modules/linear_of_a_very_long_name.py", 130),
    )
    tree = CallTree(
        "seconds",
        parents=(-1, 0, 1, 0, 3),
        frames=(0, 1, 2, 3, 4),
        own=(1.0, 1.0, 4.0, 1.0, 3.0),
        threads=(0,) * 5,
    )
    return replace(sampled(), frames=frames, tree=tree, lines=(), label="train.py")


def test_imports_are_summed_up_unless_they_are_asked_for() -> None:
    text = profile_text(imported())
    assert "imports left out (5.00 s, 50 % of all)" in text
    assert "_find_and_load" not in text
    assert "60 %" in text  # 3 of the 5 seconds that are no imports
    with_all = profile_text(imported(), imports=True)
    assert "left out" not in with_all
    assert "_find_and_load" in with_all


def test_a_program_that_only_imports_shows_its_imports() -> None:
    profile = imported()
    assert profile.tree is not None
    only = replace(profile.tree, own=(0.0, 1.0, 4.0, 0.0, 0.0))
    text = profile_text(replace(profile, tree=only))
    assert "nearly all of it in imports" in text
    assert "_find_and_load" in text


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_table_is_one(width: int) -> None:
    text = profile_text(imported(), width=width)
    assert text.count("where") == 1
    rows = [line for line in text.splitlines() if ":6" in line or ":130" in line]
    assert len(rows) == 2
    assert all("forward" in row and "%" in row for row in rows)
    assert max(map(len, text.splitlines())) <= width


def test_boxes_of_one_name_carry_their_place() -> None:
    drawn = profile_svg(imported())
    written = {text.text for text in ET.fromstring(drawn).iter(SVG + "text")}
    assert "forward (net.py:6)" in written
    assert "_find_and_load" in written  # the only one of its name

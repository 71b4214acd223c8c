"""From a record to points, peaks and a verdict; what is missing is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.explain.synthetic import BANDS, KIB, MIB, PEAK, arm, calibration, flops, result
from torchstone.explain import Roofline, roofline
from torchstone.records import Flops, Outcome, Peak, UsageError


def made(counted: Flops, seconds: float = 1e-3, **spec: str) -> Roofline:
    return roofline(result(arm(counted, seconds, **spec)), calibration())


COMPUTE = flops(80_000_000, 8 * MIB, 4 * MIB)
MEMORY = flops(2_000_000, 16 * MIB, 200 * MIB)
CACHED = flops(20_000_000, 40 * MIB, 10 * MIB)
SMALL = flops(200_000, 20 * KIB, 10 * KIB)


@pytest.mark.parametrize(
    ("counted", "bound", "words"),
    [
        (COMPUTE, "compute", "80 % of the fp32 peak at 2 threads"),
        (MEMORY, "memory (DRAM)", "84 % of the bandwidth"),
        (CACHED, "memory (L3)", "52 % of the bandwidth"),
        (SMALL, "neither: overhead", "the dispatch of 14 ops"),
    ],
)
def test_the_bound_in_a_word_and_a_sentence(counted: Flops, bound: str, words: str) -> None:
    found = made(counted)
    assert found.bound == bound
    assert words in found.sentence


def test_the_step_and_its_ops() -> None:
    found = made(COMPUTE)
    step, dear, *_ = found.points
    assert step is found.step
    assert (step.kind, step.flops, step.bytes, step.estimated) == (
        "step",
        80_000_000,
        8 * MIB,
        False,
    )
    assert step.rate == pytest.approx(80e9, rel=0.05)
    assert step.intensity == pytest.approx(80_000_000 / (8 * MIB))
    assert (dear.name, dear.kind, dear.estimated) == ("aten.addmm", "op", True)
    assert sum(point.seconds for point in found.points[1:]) <= step.seconds * 1.0001
    assert found.points[2].rate is None
    assert found.points[2].bandwidth is not None
    assert any("counting pass" in note for note in found.notes)


def test_a_slow_counting_pass_is_scaled_to_the_step() -> None:
    found = made(COMPUTE, 1e-4)
    ops = found.points[1:]
    assert sum(point.seconds for point in ops) == pytest.approx(found.step.seconds)
    assert ops[0].seconds / ops[1].seconds == pytest.approx(900 / 60)


def test_roofs_and_ridges() -> None:
    found = made(COMPUTE)
    assert [(ceiling.kind, ceiling.name, ceiling.value) for ceiling in found.ceilings] == [
        ("compute", "fp32", PEAK),
        *(("memory", level, value) for level, value in BANDS.items()),
    ]
    assert [ceiling.name for ceiling in found.ceilings if ceiling.nearer] == ["fp32"]
    assert found.ridges == {level: PEAK / value for level, value in BANDS.items()}
    assert [ceiling.name for ceiling in made(MEMORY).ceilings if ceiling.nearer] == ["DRAM"]


def test_little_coverage_gives_no_compute_verdict() -> None:
    found = made(replace(COMPUTE, time_covered=0.5, time_understood=0.6))
    assert found.bound == ""
    assert "40 %" in found.sentence
    assert any("no share of the compute peak is claimed" in note for note in found.notes)
    understood = made(replace(COMPUTE, time_covered=0.5, time_understood=0.95))
    assert understood.bound == "compute"


def test_memory_may_be_said_where_the_rest_is_understood() -> None:
    found = made(replace(MEMORY, time_covered=0.5, time_understood=1.0))
    assert found.bound == "memory (DRAM)"
    unknown = made(replace(MEMORY, time_covered=0.5, time_understood=0.6))
    assert unknown.bound == ""
    assert "40 %" in unknown.sentence


def test_more_than_the_roof_is_an_error_and_no_verdict() -> None:
    found = made(replace(COMPUTE, total=150_000_000))
    assert found.bound == ""
    assert "cannot be" in found.sentence


def test_a_compiled_arm_has_a_range_and_no_ops() -> None:
    found = made(COMPUTE, variant="inductor")
    assert len(found.points) == 1
    assert found.step.bytes == COMPUTE.least_bytes
    assert found.step.estimated
    assert found.bound == "compute"
    # Of what the compiler fused it depends which peak is nearer: nothing is said.
    between = flops(20_000_000, 40 * MIB, 4 * MIB)
    assert made(between, variant="inductor").bound == ""
    assert made(between).bound == "memory (L3)"


def test_an_unknown_roof_gives_no_verdict() -> None:
    known = calibration(compute=(Peak(PEAK, dtype="fp64", threads=2),))
    found = roofline(result(arm(COMPUTE)), known)
    assert found.bound == ""
    assert "peak is not known" in found.sentence


def test_an_arm_by_name() -> None:
    both = result(arm(COMPUTE), arm(MEMORY, name="other"))
    assert roofline(both, calibration(), "other").arm == "other"
    with pytest.raises(UsageError, match="no arm 'third'") as error:
        roofline(both, calibration(), "third")
    assert "eager, other" in error.value.remedy


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"flops": None}, "no count"),
        ({"flops": None, "notes": ("FLOPs not counted: it died",)}, "it died"),
        ({"turns": (), "replicates": (), "outcome": Outcome.CRASH}, "no measured time"),
    ],
)
def test_what_is_missing_is_said(changes: dict[str, object], words: str) -> None:
    broken = replace(arm(COMPUTE), **changes)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=words):
        roofline(result(broken), calibration())


def test_shapes_that_vary_have_no_count() -> None:
    with pytest.raises(UsageError, match="shapes vary"):
        roofline(result(arm(COMPUTE, shapes=4)), calibration())


@pytest.mark.parametrize(
    "ceilings", [None, calibration(machine_id="another"), calibration(compute=(), bandwidth=())]
)
def test_without_roofs_the_remedy_is_to_calibrate(ceilings: object) -> None:
    with pytest.raises(UsageError) as error:
        roofline(result(arm(COMPUTE)), ceilings)  # type: ignore[arg-type]
    assert "torchstone doctor --calibrate" in error.value.remedy

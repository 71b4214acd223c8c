"""The runner's names in our words, and back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.interop.rows import (
    Naming,
    compiler_of,
    key_of,
    naming_of,
    read_stem,
    safe_stem,
    their_model,
    variant_of,
)
from torchstone.records import CaseKey

WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789+-", min_size=1, max_size=12).filter(
    lambda text: not text.startswith("-")
)


@pytest.mark.parametrize(
    ("stem", "named"),
    [
        (
            "inductor_no_cudagraphs_timm_models_bfloat16_inference_cuda_performance",
            ("inductor_no_cudagraphs", "timm_models", "bfloat16", "inference", "cuda"),
        ),
        (
            "inductor_with_cudagraphs_freezing_torchbench_amp_training_cuda_a10g_accuracy",
            ("inductor_with_cudagraphs_freezing", "torchbench", "amp", "training", "cuda_a10g"),
        ),
        (
            "inductor_dynamic_my_suite_float32_inference_cpu_x86_accuracy",
            ("inductor_dynamic", "my_suite", "float32", "inference", "cpu_x86"),
        ),
        (
            "eager_huggingface_amp_training_mps_performance",
            ("eager", "huggingface", "amp", "training", "mps"),
        ),
        ("speedup_inductor", ("inductor", "", "", "", "")),
        ("accuracy_aot_eager", ("aot_eager", "", "", "", "")),
        ("training_timm_models", ("", "timm_models", "", "training", "")),
        ("my table", ("my table", "", "", "", "")),
        ("x" * 100_000, ("", "", "", "", "")),
    ],
)
def test_a_file_name_says_what_it_says(stem: str, named: tuple[str, ...]) -> None:
    found = read_stem(stem)
    assert (found.compiler, found.suite, found.dtype, found.mode, found.device) == named


def test_the_table_is_read_from_the_name_too() -> None:
    assert read_stem("speedup_inductor").table == "performance"
    assert read_stem("accuracy_inductor").table == "accuracy"
    assert read_stem("a_torchbench_amp_training_cuda_accuracy").table == "accuracy"


@pytest.mark.parametrize(
    ("compiler", "device", "variant"),
    [
        ("inductor_no_cudagraphs", "cuda", "inductor"),
        ("inductor_with_cudagraphs", "cuda", "inductor+cudagraphs"),
        ("inductor_dynamic", "cpu_x86", "inductor+dynamic"),
        ("inductor_dynamic", "cuda", "inductor+cudagraphs+dynamic"),
        ("inductor_aot_inductor", "cuda", "aoti"),
        # Ours is plain eager and inductor without CUDA graphs; these are not the same things.
        ("eager", "cuda", "dynamo:eager"),
        ("nothing", "cuda", "eager"),
        ("torchstone-nothing", "cuda", "nothing"),
        ("inductor", "cuda", "dynamo:inductor"),
        ("inductor_cpp_wrapper", "cuda", "inductor_cpp_wrapper"),
        ("aot_eager", "cpu", "aot_eager"),
    ],
)
def test_a_compiler_becomes_a_variant_only_where_it_means_the_same(
    compiler: str, device: str, variant: str
) -> None:
    assert variant_of(compiler, device) == variant
    assert compiler_of(variant, device) == compiler


@given(st.one_of(WORD, st.sampled_from(["inductor", "eager", "export", "inductor+dynamic"])), WORD)
def test_no_two_compilers_become_one_variant(compiler: str, device: str) -> None:
    assert compiler_of(variant_of(compiler, device), device) == compiler


@given(WORD, WORD, st.sampled_from(["fp32", "bf16", "amp", "amp-bf16"]), WORD)
def test_a_case_finds_its_way_back_through_the_file_name(
    model: str, variant: str, precision: str, device: str
) -> None:
    key = CaseKey("timm", model, "full", "training", precision, variant, device)
    named = naming_of(key, "performance")
    assert key_of(read_stem(named.stem), their_model(key), device) == key


def test_a_small_model_never_goes_by_the_large_ones_name() -> None:
    small = CaseKey("huggingface", "Bert", "small", "inference", "fp32", "inductor")
    assert their_model(small) == "Bert@small"
    named = naming_of(small, "accuracy")
    assert key_of(named, "Bert@small").scale == "small"
    assert key_of(named, "Bert").scale == "full"
    assert key_of(Naming(suite="mine"), "Bert").scale == ""


@pytest.mark.parametrize("part", ["compiler", "suite", "dtype", "device"])
def test_a_long_name_is_cut_before_its_end_and_stays_apart(part: str) -> None:
    named = Naming("inductor", "timm_models", "amp", "inference", "cpu", "performance")
    one, two = (replace(named, **{part: "x" * 300 + end}) for end in "ab")
    stems = {safe_stem(name.stem) for name in (one, two, replace(one, table="accuracy"))}
    assert len(stems) == 3
    assert all(len(stem) <= 200 for stem in stems)
    found = [read_stem(stem) for stem in stems]
    assert sorted(name.table for name in found) == ["accuracy", "performance", "performance"]
    assert {name.mode for name in found} == {"inference"}
    # What is not cut is as it was; a name that somebody else gave is cut in the same way.
    assert named.stem == "inductor_timm_models_amp_inference_cpu_performance"
    parts = (one.compiler, one.suite, one.dtype, one.mode, one.device, one.table)
    assert safe_stem("_".join(parts)) == one.stem
    assert safe_stem("x" * 300 + "a") != safe_stem("x" * 300 + "b")


@pytest.mark.parametrize("text", ["../../etc/passwd", "a/b\\c", "..", "", "=cmd|' /C x'!A0", "-rf"])
def test_a_file_name_leads_nowhere_else(text: str) -> None:
    stem = safe_stem(text)
    assert stem
    assert not set(stem) & set("/\\|'! ")
    assert not stem.startswith((".", "-"))


def test_a_device_with_an_index_keeps_it() -> None:
    key = CaseKey("timm", "m", "full", "inference", "fp32", "inductor", "cuda:0")
    named = naming_of(key, "accuracy")
    assert named.device == "cuda-0"
    assert key_of(named, "m", "cuda:0").device == "cuda:0"
    assert (
        key_of(read_stem("i_torchbench_amp_training_cuda_a10g_accuracy"), "m", "cuda").device
        == "cuda_a10g"
    )


@pytest.mark.parametrize("suite", ["torchbench", "torchbench-checkout", "timm"])
@pytest.mark.parametrize("scale", ["small", "full"])
def test_a_suite_keeps_its_name_and_its_scale(suite: str, scale: str) -> None:
    key = CaseKey(suite, "dcgan", scale, "inference", "fp32", "inductor", "cuda")
    named = read_stem(naming_of(key, "performance").stem)
    assert key_of(named, their_model(key)) == key

"""Variant names, their switches, and the steps they make, in this process."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from torchstone.conductor.check_outputs import TOLERANCES
from torchstone.measure.evidence import checked_call
from torchstone.records import PRECISIONS, ArmSpec, UsageError
from torchstone.variants import (
    NotSupported,
    check_variant,
    known_variants,
    prepare,
    reference_step,
    resolve_variant,
)
from torchstone.variants.base import EAGER
from torchstone.variants.registry import with_techniques
from torchstone.variants.step import autocast_type
from torchstone.workloads import Workload, draw

ARM = ArmSpec("arm", "nets.py:make")


def test_the_built_in_variants_are_known() -> None:
    names = {"eager", "inductor", "aot_eager", "cudagraphs", "jit-trace", "export", "aoti"}
    assert names <= set(known_variants())
    for name in names:
        assert resolve_variant(name).name == name


def test_switches_are_kept_in_order_and_once() -> None:
    assert resolve_variant("inductor+dynamic+freezing+dynamic").name == "inductor+dynamic+freezing"


def test_a_target_that_empties_the_path_does_not_change_what_eager_means(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert resolve_variant("eager") is EAGER
    monkeypatch.setattr(sys, "path", [])
    assert resolve_variant("eager") is EAGER  # else it would be torch.compile's backend "eager"


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("inductor+dynamc", "no modifier 'dynamc'", r"\+dynamic"),
        ("eager+dynamic", "eager has no modifier", "channels_last"),
        ("export+dynamic", "export has no modifier", ""),
        ("indutcor", "There is no variant 'indutcor'", "inductor"),
        ("", "There is no variant ''", "Known here"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(text: str, message: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        check_variant(text, lambda: ["tvm"])
    assert remedy.replace("\\", "") in caught.value.remedy


def test_a_backend_of_torch_is_a_variant_and_asked_for_only_if_needed() -> None:
    check_variant("tvm", lambda: ["tvm"])
    check_variant("relu_compile_error_TESTING_ONLY", lambda: ["relu_compile_error_TESTING_ONLY"])
    check_variant("inductor", lambda: pytest.fail("asked in vain"))


@pytest.mark.parametrize(
    ("variant", "mode", "reason"),
    [
        ("cudagraphs", "inference", "CUDA"),
        ("inductor+cudagraphs", "inference", "CUDA"),
        ("inductor+freezing", "training", "inference only"),
        ("aot_eager+max-autotune", "inference", "switch of inductor"),
        ("jit-trace", "training", "inference only"),
        ("export", "inference", "one input shape"),
        ("aoti", "inference", "one input shape"),
    ],
)
def test_what_cannot_be_done_is_said_before_it_is_tried(
    variant: str, mode: str, reason: str
) -> None:
    found = resolve_variant(variant).unsupported(replace(ARM, mode=mode, shapes=4))
    assert found is not None
    assert reason in found
    assert resolve_variant("export").unsupported(ARM) is None


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def workload(torch: Any) -> Workload:
    from tests.targets.nets import make

    torch.manual_seed(0)
    return Workload(*make())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("variant", ["aot_eager", "jit-trace", "export"])
def test_a_variant_computes_what_eager_computes(
    torch: Any, workload: Workload, variant: str
) -> None:
    example = draw(workload, 0)
    eager = prepare(workload, example, ARM)
    wanted = [eager.step(*draw(workload, seed).args)["logits"] for seed in (1, 2)]
    if variant == "jit-trace":  # traces plain tensors only

        class Plain(torch.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self, net: Any) -> None:
                super().__init__()
                self.net = net

            def forward(self, x: Any) -> Any:
                return self.net(x)["logits"]

        workload = replace(workload, call=Plain(workload.call))
    made = prepare(workload, example, replace(ARM, variant=variant))
    for seed, want in zip((1, 2), wanted, strict=True):
        got = made.step(*draw(workload, seed).args)
        got = got["logits"] if isinstance(got, dict) else got
        torch.testing.assert_close(got, want)


def test_precisions_change_weights_and_inputs(torch: Any, workload: Workload) -> None:
    made = prepare(workload, draw(workload, 0), replace(ARM, precision="bf16"))
    inputs = made.cast(draw(workload, 1))
    assert inputs.args[0].dtype == torch.bfloat16
    assert made.step(*inputs.args)["logits"].dtype == torch.bfloat16


def test_the_reference_is_float64_and_eager(torch: Any, workload: Workload) -> None:
    made = reference_step(workload, draw(workload, 0), replace(ARM, variant="aot_eager"))
    out = made.step(*made.cast(draw(workload, 1)).args)
    assert out["logits"].dtype == torch.float64


def test_tf32_needs_cuda(torch: Any, workload: Workload) -> None:
    with pytest.raises(NotSupported, match="CUDA"):
        prepare(workload, draw(workload, 0), replace(ARM, precision="tf32"))


@pytest.mark.parametrize(
    ("precision", "mode", "said", "dtype"),
    [
        ("amp", "inference", "amp (bfloat16)", "bfloat16"),
        ("amp-bf16", "inference", "amp-bf16 (bfloat16)", "bfloat16"),
        ("amp-fp16", "inference", "amp-fp16 (float16)", "float16"),
        ("amp-bf16", "training", "amp-bf16 (bfloat16)", ""),
        ("amp-fp16", "training", "amp-fp16 (float16, GradScaler)", ""),
    ],
)
def test_mixed_precisions_cast_what_runs_and_not_what_is_kept(
    torch: Any, workload: Workload, precision: str, mode: str, said: str, dtype: str
) -> None:
    made = prepare(workload, draw(workload, 0), replace(ARM, precision=precision, mode=mode))
    inputs = made.cast(draw(workload, 1)).args
    output = made.step(*inputs)
    assert made.autocast == said
    assert inputs[0].dtype == made.module.first.weight.dtype == torch.float32
    if dtype:
        assert output["logits"].dtype == getattr(torch, dtype)
    else:
        assert output.dtype == torch.float32


def test_amp_on_cuda_means_float16() -> None:
    assert [autocast_type("amp", device) for device in ("cpu", "cuda:1", "xpu")] == [
        "bfloat16",
        "float16",
        "bfloat16",
    ]
    assert autocast_type("fp16", "cuda") is None


def test_every_precision_has_a_tolerance() -> None:
    # What techniques compute in, and are judged by, without being a precision of an arm.
    assert set(TOLERANCES) == {*PRECISIONS, "int8", "metric"}


def _gradients(workload: Workload, precision: str) -> tuple[Any, int]:
    """Evidence of one checked training step, and how many steps it took."""
    arm = replace(ARM, mode="training", precision=precision)
    if precision == "fp64":
        made = reference_step(workload, draw(workload, 0), replace(arm, precision="amp-fp16"))
    else:
        made = prepare(workload, draw(workload, 0), arm)
    steps = 0

    def call(inputs: Any) -> Any:
        nonlocal steps
        steps += 1
        return made.step(*inputs.args, **inputs.kwargs)

    return checked_call(made, call, made.cast(draw(workload, 1)), 5), steps


@pytest.mark.parametrize("factory", ["make", "make_loud"])
def test_gradients_that_are_checked_are_the_true_ones(torch: Any, factory: str) -> None:
    """Scaled by 65536 for float16, and overflowing at first where the output is loud."""
    from tests.targets import nets

    def fresh() -> Workload:
        torch.manual_seed(0)
        return Workload(*getattr(nets, factory)())

    true, _ = _gradients(fresh(), "fp64")
    found, steps = _gradients(fresh(), "amp-fp16")
    assert (steps > 1) == (factory == "make_loud")
    assert true["grad"]["first.weight"].dtype == torch.float64
    for name, grad in true["grad"].items():
        scale = grad.square().mean().sqrt()
        error = (found["grad"][name].double() - grad).square().mean().sqrt() / scale
        assert error < 3e-3, name  # about three units in the last place of float16
    torch.testing.assert_close(found["loss"].double(), true["loss"], rtol=3e-3, atol=0)


def test_a_gradient_that_is_never_finite_ends_the_repeats(torch: Any) -> None:
    class Broken(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            return self.weight * x * float("nan")

    found, steps = _gradients(Workload(Broken(), (torch.ones(3),)), "amp-fp16")
    assert bool(found["grad"]["weight"].isnan().all())
    assert 16 <= steps <= 20  # until the loss is scaled up no more


def test_a_training_step_learns_and_can_be_taken_back(torch: Any, workload: Workload) -> None:
    made = prepare(workload, draw(workload, 0), replace(ARM, mode="training"))
    assert made.keep_start is not None
    restore = made.keep_start()
    weights = made.module.first.weight.detach().clone()
    inputs = made.cast(draw(workload, 1)).args
    first = made.evidence(made.step(*inputs))
    grad = first["grad"]["first.weight"].clone()
    made.step(*inputs)
    assert not torch.equal(made.module.first.weight, weights)
    restore()
    assert torch.equal(made.module.first.weight, weights)
    again = made.evidence(made.step(*inputs))
    assert torch.equal(again["loss"], first["loss"])
    assert torch.equal(again["grad"]["first.weight"], grad)


def test_training_needs_a_module_with_parameters(torch: Any) -> None:
    function = Workload(lambda x: x * 2, (torch.ones(3),))
    with pytest.raises(UsageError, match="plain function"):
        prepare(function, draw(function, 0), replace(ARM, mode="training"))
    empty = Workload(torch.nn.ReLU(), (torch.ones(3),))
    with pytest.raises(UsageError, match="no trainable parameters"):
        prepare(empty, draw(empty, 0), replace(ARM, mode="training"))


@pytest.mark.parametrize("variant", ["eager", "eager+no_grad", "eager+inference_mode"])
def test_a_function_that_makes_its_own_tensors_takes_techniques(torch: Any, variant: str) -> None:
    from tests.targets.causes import makes_its_own

    arm = replace(ARM, variant=variant)
    made = with_techniques(Workload(makes_its_own), variant)
    with torch.enable_grad():
        output = prepare(made, draw(made, 0), arm).step()
    assert output.requires_grad == (variant == "eager")


def test_torch_settings_mean_nothing_without_torch_in_the_target() -> None:
    plain = Workload(sum, ([1, 2, 3],))
    assert prepare(plain, draw(plain, 0), ARM).step([1, 2]) == 3
    with pytest.raises(NotSupported, match="does not use torch"):
        prepare(plain, draw(plain, 0), replace(ARM, variant="inductor"))

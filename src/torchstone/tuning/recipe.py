"""The recipe: a Python file that applies what was adopted, made of the very code that was measured.

The functions of techniques need nothing of ours, so their source is copied as it stands.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Sequence

from torchstone.machine.memory import allocator_environment
from torchstone.machine.processes import usable_cores
from torchstone.records import ArmSpec, Decision, Experiment, Tuning
from torchstone.tuning.plan import arm_of, work_of
from torchstone.variants.techniques import TECHNIQUES, Code
from torchstone.variants.techniques.base import COMPILE, OPTIMIZER, PREPARE

_PRECISIONS = {"amp-bf16", "amp-fp16", "bf16", "tf32"}
WIDTH = 88


def environment_of(base: ArmSpec, arm: ArmSpec) -> dict[str, str]:
    """The variables with which the process must be started."""
    known = dict(base.env)
    found = {name: value for name, value in arm.env if known.get(name) != value}
    found.pop("TORCHINDUCTOR_CPP_WRAPPER", None)  # the recipe's own code sets it
    if arm.allocator != base.allocator:
        found.update(allocator_environment(arm.allocator))
    return found


def changes_of(names: Sequence[str], base: ArmSpec) -> tuple[str, ...]:
    """What the techniques together may change of the contract, and the precision they work in."""
    arm = arm_of(base, names)
    found = {change for name in names for change in TECHNIQUES[name].changes}
    if arm.precision != base.precision and arm.precision in _PRECISIONS:
        found.add(arm.precision)
    return tuple(sorted(found))


def recipe_text(tuning: Tuning, names: Sequence[str]) -> str:
    """The file."""
    base = tuning.arm
    arm = arm_of(base, names)
    codes = [code for name in names for code in TECHNIQUES[name].code]
    compiles = any(code.when == COMPILE for code in codes) or "compile_blocks" in names
    parts = [
        f'"""{_docstring(tuning, names)}"""',
        "from __future__ import annotations\n\nfrom typing import Any",
        f"TECHNIQUES = {tuple(names)!r}\n"
        f"CHANGES = {changes_of(names, base)!r}\n"
        f"COMPILES = {compiles!r}\n"
        f"ENVIRONMENT = {environment_of(base, arm)!r}\n"
        f"BATCH_TIMES = {work_of(names)!r}",
        *_functions(codes, arm),
    ]
    return "\n\n\n".join(parts[:1]) + "\n\n" + "\n\n\n".join(parts[1:]) + "\n"


def _functions(codes: Sequence[Code], arm: ArmSpec) -> list[str]:
    """`prepare`, `apply`, `apply_optimizer`, and before them what they call."""
    sources = {code.function.__name__: _source(code) for code in codes}
    model = sorted(
        (code for code in codes if code.when not in (PREPARE, OPTIMIZER)),
        key=lambda code: code.when,
    )
    prepared = [f"    {_call(code, '', arm)}" for code in codes if code.when == PREPARE]
    applied = [f"    model = {_call(code, 'model', arm)}" for code in model]
    stepped = [
        f"    optimizer = {_call(code, 'optimizer', arm)}"
        for code in codes
        if code.when == OPTIMIZER
    ]
    said = '    """Call it first, before the model and the data loader are made."""'
    made = [
        "\n".join(("def prepare() -> None:", said, *prepared)),
        "\n".join(
            (
                "def apply(model: Any) -> Any:",
                '    """The model, or the function, with everything that was adopted."""',
                *applied,
                "    return model",
            )
        ),
    ]
    if stepped:
        head = "def apply_optimizer(optimizer: Any) -> Any:"
        doc = '    """The same for the optimizer; call it before the first step."""'
        made.append("\n".join((head, doc, *stepped, "    return optimizer")))
    return [*sources.values(), *made]


def _source(code: Code) -> str:
    text = textwrap.dedent(inspect.getsource(code.function)).rstrip()
    return re.sub(r"  # type: ignore\[.*?\]", "", text)  # a remark to our own type checker


def _call(code: Code, first: str, arm: ArmSpec) -> str:
    given = code.arguments.format(
        threads=arm.threads, device=arm.device, cores=max(2, usable_cores())
    )
    return f"{code.function.__name__}({', '.join(filter(None, (first, given)))})"


def _docstring(tuning: Tuning, names: Sequence[str]) -> str:
    base, environment = tuning.arm, tuning.environment
    confirmed = tuning.confirmation
    lines = [f"Makes {base.target} faster ({base.mode}, {base.precision}, {base.device}).", ""]
    if tuning.goal == "memory":
        lines[0] = f"Makes {base.target} need less memory ({base.mode}, {base.precision})."
    lines.append(_measured(confirmed) if confirmed else "Not confirmed yet.")
    lines += ["", "Steps, in the order in which they were adopted, each against the one before:"]
    for step in tuning.ladder:
        lines.append(f"  {step.technique}: {TECHNIQUES[step.technique].summary}{_gain(step)}")
    conditions = dict.fromkeys(one for step in tuning.ladder for one in step.conditions)
    breaks = {TECHNIQUES[name].may_break for name in names} - {"", "nothing"}
    lines += ["", "May break: " + "; ".join(sorted(breaks)) + "."] if breaks else []
    lines += [f"Holds {one}" for one in conditions]
    if environment is not None:
        held = [
            f"torch {environment.torch.get('version', '?')}",
            f"Python {environment.python.get('version', '?')}",
            environment.cpu.get("model", ""),
        ]
        lines += ["", f"Holds for {', '.join(filter(None, held))}."]
    if work_of(names) > 1:
        lines += ["", f"Give the model batches {work_of(names)} times as large."]
    variables = environment_of(base, arm_of(base, names))
    if variables:
        words = " ".join(f"{name}={value}" for name, value in variables.items())
        lines += ["", "Start the process with:", f"  {words}"]
    lines += ["", f"Made by `torchstone tune` {tuning.version} ({tuning.id}).", ""]
    wrapped = [line if line.startswith("  ") else textwrap.fill(line, WIDTH) for line in lines]
    return "\n".join(wrapped).replace("\\", "/").replace('"""', "'''")


def _measured(one: Experiment) -> str:
    if one.decision is not Decision.ADOPTED:
        return f"NOT CONFIRMED from this file: {one.decision.value}. {one.reason}"
    if one.speedup is None or one.interval is None:
        return "Measured from this file: its gain could not be told."
    low, high = 1 / one.interval[1], 1 / one.interval[0]
    memory = f", {one.memory_ratio:.0%} of the tensors' memory" if one.memory_ratio else ""
    return (
        f"Measured from this file in new processes: {one.speedup:.3g} times as fast "
        f"({1 - one.alpha:.0%} interval {low:.3g} to {high:.3g}){memory}."
    )


def _gain(step: Experiment) -> str:
    if step.speedup is None or step.interval is None:
        return ""
    low, high = 1 / step.interval[1], 1 / step.interval[0]
    return f" ({step.speedup:.3g} times as fast, {low:.3g} to {high:.3g})"

"""A tuning as a record, for what shows and stores one."""

from __future__ import annotations

from torchstone.records import (
    ArmSpec,
    Decision,
    Environment,
    Experiment,
    Stage,
    Tuning,
)


def tuning() -> Tuning:
    """Two techniques alone, one of them adopted, two refused, and the recipe confirmed."""
    good = Experiment(
        Stage.SCREEN,
        "channels_last",
        Decision.PROMISING,
        tier="tolerance",
        shown_tier="tolerance",
        share=0.9,
        time_ratio=0.65,
        interval=(0.6, 0.7),
        memory_ratio=1.0,
        result_id="r1",
    )
    experiments = (
        Experiment(Stage.SCREEN, "tf32", Decision.NOT_APPLICABLE, "tf32 is a mode of CUDA devices"),
        good,
        Experiment(
            Stage.SCREEN,
            "compile",
            Decision.WRONG_ANSWER,
            "zeros instead <script>alert(1)</script>",
            time_ratio=0.1,
            memory_ratio=0.5,
            result_id="r2",
        ),
        Experiment(
            Stage.SCREEN,
            "gc_freeze",
            Decision.REJECTED,
            "no gain above 2% (1 times as fast)",
            time_ratio=1.0,
            interval=(0.99, 1.01),
            memory_ratio=1.1,
            result_id="r3",
        ),
        Experiment(
            Stage.SELECT,
            "channels_last",
            Decision.ADOPTED,
            tier="tolerance",
            shown_tier="tolerance",
            time_ratio=0.64,
            interval=(0.62, 0.66),
            memory_ratio=1.0,
            compile_s=3.0,
            break_even_calls=1234.0,
            result_id="r4",
        ),
        Experiment(
            Stage.CONFIRM,
            "recipe",
            Decision.ADOPTED,
            on=("channels_last",),
            time_ratio=0.625,
            interval=(0.6, 0.65),
            memory_ratio=0.99,
            peak_bytes=1 << 20,
            result_id="r5",
        ),
    )
    return Tuning(
        "1tuned",
        "2026-11-18T05:00:00+00:00",
        ArmSpec("baseline", "model.py:make", threads=2),
        rules=("Every technique that applies (3) is measured alone against the baseline.",),
        experiments=experiments,
        adopted=("channels_last",),
        state="complete",
        recipe="def apply(model):\n    return model\n",
        recipe_path="recipe_1tuned.py",
        findings=("Waiting for data: 40 % of the step waits. Remedy by hand: load ahead.",),
        environment=Environment("m", torch={"version": "2.13.0"}),
        elapsed_s=300.0,
        version="0.1.0",
    )

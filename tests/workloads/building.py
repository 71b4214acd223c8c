"""Builds suite models in a process of its own and tells what came of it, as JSON.

python -m tests.workloads.building TARGET MODE PRECISION [TARGET MODE PRECISION …]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 600
Request = tuple[str, str, str]


def build_all(requests: Sequence[Request], **env: str) -> dict[Request, dict[str, Any]]:
    """What came of each (target, mode, precision); one process for all of them."""
    words = [word for request in requests for word in request]
    done = subprocess.run(
        [sys.executable, "-m", "tests.workloads.building", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **env},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    facts = json.loads(done.stdout.splitlines()[-1])
    return dict(zip(requests, facts, strict=True))


def describe(target: str, mode: str, precision: str) -> dict[str, Any]:
    """Build, run one step, and say what is known of it."""
    from torchstone.measure.worker import failure_of
    from torchstone.records import ArmSpec
    from torchstone.workloads import load_workload

    arm = ArmSpec("arm", target, mode=mode, precision=precision)
    phases: list[str] = []
    try:
        workload = load_workload(arm, phases.append)
        return {"outcome": "ok", "phases": phases, "notes": workload.notes, **step(workload, arm)}
    except Exception as error:
        failure = failure_of(error, phases[-1])
        return {"outcome": failure.kind, "reason": failure.message, "phases": phases}


def step(workload: Any, arm: Any) -> dict[str, Any]:
    """Facts of the module, of its inputs and of one step."""
    import torch

    from torchstone.variants import prepare
    from torchstone.workloads import draw, walk

    first, same, other = (draw(workload, seed) for seed in (1, 1, 2))
    torch.manual_seed(12345)
    seeded = torch.initial_seed()
    module = workload.call
    optimizer = workload.optimizer and workload.optimizer(list(module.parameters()))
    prepared = prepare(workload, draw(workload, arm.seed), arm)
    cast = prepared.cast(first)
    output = prepared.step(*cast.args, **cast.kwargs)
    leaves = [leaf for _, leaf in walk((first.args, first.kwargs), "")]
    return {
        "module": type(module).__name__,
        "inputs": [list(leaf.shape) for leaf in leaves],
        "input_types": sorted({str(leaf.dtype)[6:] for leaf in leaves}),
        "parameters": sum(p.numel() for p in module.parameters()),
        "parameter_types": sorted({str(p.dtype)[6:] for p in module.parameters()}),
        "dropout": [m.p for m in module.modules() if isinstance(m, torch.nn.Dropout)],
        "optimizer": optimizer and [type(optimizer).__name__, optimizer.defaults["lr"]],
        "seeded": seeded,
        "equal_seeds_equal_inputs": equal(first, same),
        "other_seeds_other_inputs": not equal(first, other),
        "output": [[list(part.shape), bool(part.isfinite().all())] for part in tensors(output)],
        "gradients": sum(p.grad is not None for p in module.parameters()),
    }


def tensors(value: Any) -> list[Any]:
    """The tensors of an output."""
    import torch

    from torchstone.workloads import walk

    return [leaf for _, leaf in walk(value, "") if isinstance(leaf, torch.Tensor)]


def equal(one: Any, other: Any) -> bool:
    """Whether two draws are the same to the last bit."""
    import torch

    pairs = zip(tensors((one.args, one.kwargs)), tensors((other.args, other.kwargs)), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


if __name__ == "__main__":
    words = sys.argv[1:]
    found = [describe(*words[i : i + 3]) for i in range(0, len(words), 3)]
    print(json.dumps(found))

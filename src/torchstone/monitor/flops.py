"""FLOPs of a training step, counted once, in a process of its own.

A forked child calls the model on tensors without data (`meta`), as large as a batch that was seen:
the training's thread does nothing for it, and nothing is computed. A batch does not tell how the
model is called with it, so the usual ways are tried: Lightning's `training_step`, `model(**batch)`,
`model(batch)`, `model(first)`, `model(*batch)`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from torchstone.monitor.clock import Leaf

LONGEST_S = 120.0
NICE = 19
MOST_ANSWER = 4096
BACKWARD = 2.0
"""FLOPs of a backward pass for each of the forward pass: a product has two gradients."""


class Counted(NamedTuple):
    """What the child answered."""

    flops: float
    """Of forward and backward; 0 where they could not be counted."""
    how: str
    """The call that was counted, or why nothing was."""


class FlopsCount:
    """Begun once; asked twice a second until the child has answered."""

    def __init__(self) -> None:
        self._pid = 0
        self._pipe = -1
        self._until = 0.0

    def begin(self, model: Any, leaves: Sequence[Leaf]) -> None:
        """Fork. The child has only this thread, touches no device, and never returns."""
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other threads live on in the parent alone
            pid = os.fork()
        if pid:
            os.close(writing)
            self._pid, self._pipe = pid, reading
            self._until = time.monotonic() + LONGEST_S
            return
        try:
            signal.alarm(round(LONGEST_S))
            os.nice(NICE)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for one in (0, 1, 2):
                os.dup2(nowhere, one)
            os.write(writing, json.dumps(count_step(model, leaves)).encode()[:MOST_ANSWER])
        finally:
            os._exit(0)

    def look(self) -> Counted | None:
        """The answer, once; None while there is none."""
        if not self._pid:
            return None
        late = time.monotonic() > self._until
        if not late and not select.select([self._pipe], [], [], 0)[0]:
            return None
        text = b"" if late else os.read(self._pipe, MOST_ANSWER)
        self.end()
        with contextlib.suppress(ValueError, TypeError):
            return Counted(*json.loads(text))
        return Counted(0.0, "counting took too long" if late else "the counting process died")

    def end(self) -> None:
        """Leave no child behind."""
        if self._pid:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(self._pid, 0)
            os.close(self._pipe)
            self._pid = 0


def count_step(model: Any, leaves: Sequence[Leaf]) -> Counted:
    """Forward and backward of the model on a batch like this."""
    import torch

    torch.set_num_threads(1)
    for name in ("module", "_orig_mod"):  # DistributedDataParallel, torch.compile
        model = getattr(model, name, model)
    model = model.to("meta")  # this process has a copy of its own
    why = ""
    for how, call in _ways(torch, model, leaves):
        try:
            return Counted(*_count(call, how))
        except Exception as error:
            why = why or f"{how}: {type(error).__name__}"
    return Counted(0.0, why or "no tensors in the batch")


def _ways(
    torch: Any, model: Any, leaves: Sequence[Leaf]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    batch = {
        name: torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
        for name, shape, dtype, _ in leaves
    }

    def calling(*args: Any, **named: Any) -> Callable[[], Any]:
        return lambda: model(*args, **named)

    values = list(batch.values())
    if not values:
        return
    if hasattr(model, "training_step"):
        by_name = not next(iter(batch)).isdigit()
        whole = batch if by_name else values if len(values) > 1 else values[0]
        yield "training_step(batch)", lambda: model.training_step(whole, 0)
    if not next(iter(batch)).isdigit():  # a mapping's tensors have its names
        yield "model(**batch)", calling(**batch)
        yield "model(batch)", calling(batch)
    elif len(values) == 1:
        yield "model(batch)", calling(values[0])
        yield "model([batch])", calling(values)
    else:
        yield "model(first)", calling(values[0])
        yield "model(*batch)", calling(*values)
        yield "model(batch)", calling(values)


def _count(call: Callable[[], Any], how: str) -> tuple[float, str]:
    from torchstone.measure.flops import Tally, known_formulas, load_formulas, tally_ops
    from torchstone.workloads import walk

    tally = Tally(load_formulas(known_formulas()), traffic=False)
    output = tally_ops(call, tally)
    forward = float(sum(tally.operations.values()))
    outputs = [one for _, one in walk(output, "") if getattr(one, "requires_grad", False)]
    if not outputs or not forward:
        return forward, how
    loss = next((one for one in outputs if not one.dim()), None)
    try:
        tally_ops((sum(one.sum() for one in outputs) if loss is None else loss).backward, tally)
    except RuntimeError:  # after a device's threads have begun, autograd refuses to run in a child
        return forward * (1.0 + BACKWARD), f"{how}, backward taken as {BACKWARD:g} times forward"
    return float(sum(tally.operations.values())), how

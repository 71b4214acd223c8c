"""Whether what is trained is still the same: batches, the model's mode, the loss, the scaler."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from torchstone.monitor.clock import Leaf, StepRow, leaves
from torchstone.monitor.detect import Floats
from torchstone.records.format import count
from torchstone.records.monitoring import MonitorLevel, StepKind

MANY_SHAPES = 8
"""So many shapes are said one by one; then, once, that there are many."""
TOKENS = "input_ids"
"""A batch with this has tokens: the name that HuggingFace gives them."""
_ROW = {name: place for place, name in enumerate(StepRow._fields)}


class BatchSize(NamedTuple):
    """What a batch of one signature holds."""

    samples: int
    tokens: int
    log_elements: float


class ContractWatch:
    """Compares each step with those before it."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._known: dict[int, tuple[Leaf, ...]] = {}
        self._sizes: dict[int, BatchSize] = {}
        self._seen: dict[StepKind, list[int]] = {}
        self._eval_said = self._loss_said = False
        self.bad_losses = 0

    def take_signatures(self, signatures: Mapping[Any, int]) -> None:
        """Those that are new."""
        if len(signatures) == len(self._known):
            return
        for key, number in list(signatures.items())[len(self._known) :]:
            self._known[number] = found = leaves(key)
            self._sizes[number] = _size(found)

    def size_of(self, signature: int) -> BatchSize | None:
        """None where the batch has no tensors that are known."""
        found = self._sizes.get(signature)
        return found if found is not None and found.samples else None

    def leaves_of(self, signature: int) -> tuple[Leaf, ...]:
        """The tensors of such a batch."""
        return self._known.get(signature, ())

    def look(self, kind: StepKind, rows: Floats) -> None:
        """Steps of one kind, in order."""
        self._look_at_batches(kind, rows)
        read = rows[:, _ROW["lossless"]] == 0
        bad = np.flatnonzero(read & ~np.isfinite(rows[:, _ROW["loss"]]))
        self.bad_losses += len(bad)
        if len(bad) and not self._loss_said:
            self._loss_said = True
            step, loss = int(rows[bad[0], _ROW["step"]]), rows[bad[0], _ROW["loss"]]
            word = "NaN" if math.isnan(loss) else "infinite"
            self._say(
                step,
                "loss",
                f"The loss is {word} at step {step:,}.",
                MonitorLevel.WARN,
                cause="loss",
                remedy="Look at the learning rate, the data of this step, and mixed precision.",
            )
        asleep = np.flatnonzero(rows[:, _ROW["training"]] == 0)
        if len(asleep) and not self._eval_said:
            self._eval_said = True
            step = int(rows[asleep[0], _ROW["step"]])
            self._say(
                step,
                "eval-mode",
                f"The model is trained in eval mode since step {step:,}: "
                "dropout is off and batch norm does not learn.",
                MonitorLevel.WARN,
                cause="mode",
                remedy="Call model.train() before training goes on.",
            )

    def _look_at_batches(self, kind: StepKind, rows: Floats) -> None:
        numbers = rows[:, _ROW["signature"]].astype(int)
        # Accumulated and optimized batches come from one loader.
        group = StepKind.FORWARD if kind is StepKind.FORWARD else StepKind.TRAIN
        seen = self._seen.setdefault(group, [])
        for number in dict.fromkeys(numbers.tolist()):
            if number < 0 or number in seen:
                continue
            if seen:
                step = int(rows[int(np.argmax(numbers == number)), _ROW["step"]])
                self._changed(step, seen[-1], number, len(seen))
            seen.append(number)

    def _changed(self, step: int, old: int, new: int, known: int) -> None:
        before, after = self._known.get(old, ()), self._known.get(new, ())
        pairs = list(zip(before, after, strict=False))
        dtypes = [f"{a[0]}: {a[2]} to {b[2]}" for a, b in pairs if a[2] != b[2]]
        devices = [f"{a[0]}: {a[3]} to {b[3]}" for a, b in pairs if a[3] != b[3]]
        for what, changes in (("dtype", dtypes), ("device", devices)):
            if changes:
                text = f"The {what} of the batch changed at step {step:,} ({', '.join(changes)})."
                remedy = "Convert in one place, before the loop or in the collate function."
                self._say(step, what, text, MonitorLevel.WARN, cause=what, remedy=remedy)
        if dtypes or devices or known > MANY_SHAPES:
            return
        if known == MANY_SHAPES:
            text = (
                f"Batches have many shapes: more than {count(known, 'kind')} until step {step:,}."
            )
            self._say(step, "shapes", text, cause="shape")
            return
        shapes = [f"{list(a[1])} to {list(b[1])}" for a, b in pairs if a[1] != b[1]]
        if len(before) != len(after):
            shapes = [f"{count(len(before), 'tensor')} to {len(after)}"]
        only_first = all(a[1][1:] == b[1][1:] for a, b in pairs) and len(before) == len(after)
        name = "batch size" if only_first else "shape of the batch"
        self._say(
            step,
            "batch-size" if only_first else "shape",
            f"Another {name} at step {step:,} ({', '.join(shapes)}).",
            cause="shape",
        )


def _size(found: tuple[Leaf, ...]) -> BatchSize:
    shaped = [leaf for leaf in found if leaf[1]]
    if not shaped:
        return BatchSize(0, 0, 0.0)
    elements = sum(math.prod(leaf[1]) for leaf in shaped)
    tokens = sum(math.prod(leaf[1]) for leaf in shaped if leaf[0] == TOKENS)
    return BatchSize(shaped[0][1][0], tokens, math.log(max(1, elements)))

"""Other people's training loops: a callback for HuggingFace's Trainer and one for Lightning.

Both only open and close a monitor: the steps, the wait for data, backward and the optimizer are
marked where torch does them, since neither library tells a callback of all of these.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from torchstone.monitor.session import Monitor
from torchstone.monitor.sinks import Sink
from torchstone.records import UsageError


class _Watch:
    """What both do."""

    def __init__(self, name: str, sinks: Sequence[str | Sink], flops: float | None) -> None:
        self._name = name
        self._sinks = sinks
        self._flops = flops
        self.monitor: Monitor | None = None
        """Open while a training runs."""

    def begin(self, model: Any, optimizer: Any, step: int) -> None:
        """A training begins, or goes on."""
        self.end("")
        opened = Monitor(
            self._name,
            model=model,
            optimizer=optimizer,
            sinks=self._sinks,
            step=step,
            auto=True,
            flops_per_step=self._flops,
        )
        self.monitor = opened.__enter__()

    def end(self, reason: str) -> None:
        """It is over."""
        opened, self.monitor = self.monitor, None
        if opened is not None:
            opened.close(reason)


def trainer_callback(
    name: str = "trainer",
    *,
    sinks: Sequence[str | Sink] = (),
    flops_per_step: float | None = None,
) -> Any:
    """A `TrainerCallback`: `Trainer(..., callbacks=[torchstone.monitor.trainer_callback()])`.

    `sinks` and `flops_per_step` as `torchstone.monitor()` takes them.
    """
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise UsageError(
            "This callback needs transformers, which is not installed.",
            "Install it: pip install transformers.",
        ) from None
    watch = _Watch(name, sinks, flops_per_step)

    class MonitorCallback(TrainerCallback):
        """Opens a monitor when training begins, and closes it when it ends."""

        @property
        def monitor(self) -> Monitor | None:
            """The monitor, while a training runs."""
            return watch.monitor

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            """The model is wrapped by now, and the optimizer made."""
            watch.begin(given.get("model"), given.get("optimizer"), int(state.global_step))

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            """Also where training was stopped early."""
            watch.end("")

    return MonitorCallback()


def lightning_callback(
    name: str = "lightning",
    *,
    sinks: Sequence[str | Sink] = (),
    flops_per_step: float | None = None,
) -> Any:
    """A Lightning `Callback`: `Trainer(callbacks=[torchstone.monitor.lightning_callback()])`.

    `sinks` and `flops_per_step` as `torchstone.monitor()` takes them.
    """
    base: type = object
    for package in ("lightning.pytorch", "pytorch_lightning"):
        with contextlib.suppress(ImportError):
            base = __import__(package, fromlist=["Callback"]).Callback
            break
    else:
        raise UsageError(
            "This callback needs lightning, which is not installed.",
            "Install it: pip install lightning.",
        )
    watch = _Watch(name, sinks, flops_per_step)

    class MonitorCallback(base):  # type: ignore[misc]
        """Opens a monitor when fitting begins, and closes it when it ends."""

        @property
        def monitor(self) -> Monitor | None:
            """The monitor, while a training runs."""
            return watch.monitor

        def on_train_start(self, trainer: Any, module: Any) -> None:
            """After the sanity check of validation."""
            optimizers = trainer.optimizers
            model = getattr(trainer, "model", module)
            watch.begin(model, optimizers[0] if optimizers else None, int(trainer.global_step))

        def on_train_end(self, trainer: Any, module: Any) -> None:
            """Also where training was stopped early."""
            watch.end("")

        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            """What ended it goes into the record."""
            watch.end(type(exception).__name__)

    return MonitorCallback()

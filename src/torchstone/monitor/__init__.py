"""Watching a training loop or a service while it runs.

Holds: the marks that split a step's time and where they are set (`clock`), the thread that
adds them up (`session`, `collect`), what it finds in them (`detect`), where that goes (`journal`,
`sinks`), services (`serving`) and other people's training loops (`integrations`, `script`).
Touches: torch's global hooks while a monitor is open, the files of monitors, `records`.

The package can be called: `torchstone.monitor(...)` is the package itself and `session.monitor` at
once, because both have the name.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

TYPE_CHECKING = False

if TYPE_CHECKING:
    from torchstone.monitor.integrations import lightning_callback, trainer_callback
    from torchstone.monitor.serving import requests

__all__ = ["lightning_callback", "requests", "trainer_callback"]

_HOME = {
    "lightning_callback": "torchstone.monitor.integrations",
    "requests": "torchstone.monitor.serving",
    "trainer_callback": "torchstone.monitor.integrations",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module 'torchstone.monitor' has no attribute {name!r}")
    found: object = getattr(import_module(_HOME[name]), name)
    return found


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        """What `torchstone.monitor.session.monitor` does."""
        from torchstone.monitor.session import monitor

        return monitor(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage

"""A pytest plug-in for `torchstone check`: list what the fixture's tests would compare.

Only tests that use the fixture run, and each stops where it would begin to measure.
"""

from __future__ import annotations

from typing import Any

import pytest

from torchstone.lab import pytest_plugin
from torchstone.lab.api import as_target
from torchstone.lab.check import list_target

FIXTURE = "torchstone"


def pytest_configure(config: pytest.Config) -> None:
    """Have the fixture write targets down in place of measuring them."""
    patch = pytest.MonkeyPatch()
    patch.setattr(pytest_plugin.SpeedAssertions, "compare", _list)
    config.add_cleanup(patch.undo)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that use the fixture."""
    kept = [item for item in items if FIXTURE in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _list(self: object, base: Any, new: Any, **options: Any) -> None:
    for one in (base, new):
        list_target(as_target(one))
    pytest.skip("listed for torchstone check")

"""Formats are found by name, through the door that plug-ins come through."""

from __future__ import annotations

from importlib import metadata

import pytest

from torchstone.interop import base
from torchstone.interop.dynamo_csv import DYNAMO_CSV
from torchstone.records import UsageError


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points as an installer leaves them."""
    points = {
        name: metadata.EntryPoint(name, f"torchstone.interop.{value}", base.ENTRY_POINTS)
        for name, value in (("dynamo-csv", "dynamo_csv:DYNAMO_CSV"), ("hud-v3", "hud_v3:HUD_V3"))
    }
    monkeypatch.setattr(base, "known_formats", lambda: points)


@pytest.mark.usefixtures("installed")
def test_a_format_is_found_by_its_name() -> None:
    assert base.find_format("dynamo-csv") is DYNAMO_CSV
    assert base.find_format("hud-v3").name == "hud-v3"


@pytest.mark.usefixtures("installed")
def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError) as refused:
        base.find_format("dynamo_csv")
    assert "Did you mean dynamo-csv?" in refused.value.remedy
    assert "hud-v3" in refused.value.remedy


def test_a_package_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "known_formats", dict)
    with pytest.raises(UsageError, match="not to be found"):
        base.find_format("dynamo-csv")

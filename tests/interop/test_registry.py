"""Formats are found by name, through the door that plug-ins come through."""

from __future__ import annotations

import pytest

from torchstone.interop import base
from torchstone.interop.dynamo_csv import DYNAMO_CSV
from torchstone.records import UsageError


def test_a_format_is_found_by_its_name() -> None:
    assert base.find_format("dynamo-csv") is DYNAMO_CSV
    assert base.find_format("hud-v3").name == "hud-v3"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError) as refused:
        base.find_format("dynamo_csv")
    assert "Did you mean dynamo-csv?" in refused.value.remedy
    assert "hud-v3" in refused.value.remedy

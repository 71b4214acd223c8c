"""Every dropout goes to 0: in configurations, and what is left in the modules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from torchstone.workloads.suites.vision import dropout_notes, zero_config, zero_modules


class Config(SimpleNamespace):
    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def test_every_drop_probability_of_a_configuration_goes_nested_ones_too() -> None:
    inner = Config(attention_dropout=0.2, hidden_size=4)
    config = Config(
        hidden_dropout_prob=0.1,
        resid_pdrop=1,
        encoder_layerdrop=0.05,
        drop_path_rate=0.3,
        classifier_dropout=None,
        use_dropout=True,
        drop_after_tokens=77,
        activation_dropout=0.0,
        text_config=inner,
    )
    assert zero_config(config) == (
        "drop_path_rate",
        "encoder_layerdrop",
        "hidden_dropout_prob",
        "resid_pdrop",
        "text_config.attention_dropout",
    )
    assert inner.attention_dropout == config.hidden_dropout_prob == config.resid_pdrop == 0.0
    assert (config.classifier_dropout, config.use_dropout) == (None, True)
    assert (config.drop_after_tokens, inner.hidden_size) == (77, 4)
    assert zero_config(config) == ()


def test_what_still_drops_in_a_model_is_found() -> None:
    class StochasticDepth(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = 0.25

    class Pool(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = 0.5  # the power of a mean, not a probability
            self.attention_dropout = 0.5

    model = torch.nn.Sequential(
        torch.nn.Dropout(0.3), StochasticDepth(), Pool(), torch.nn.LSTM(2, 2, 2, dropout=0.1)
    )
    assert zero_modules(model) == ("0.p", "1.p", "2.attention_dropout", "3.dropout")
    assert [model[0].p, model[1].p, model[2].p, model[2].attention_dropout] == [0, 0, 0.5, 0]
    assert zero_modules(model) == ()


def test_notes_say_what_was_zeroed_and_when() -> None:
    assert dropout_notes((), ()) == ("no dropout in the configuration",)
    assert dropout_notes(("a", "b"), ("m.p",)) == (
        "dropout set to 0 before construction: a, b",
        "dropout set to 0 after construction: m.p",
    )

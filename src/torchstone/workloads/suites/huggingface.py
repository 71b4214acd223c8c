"""The HuggingFace suite: models of transformers from their configurations, with random weights."""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchstone.records import SCALES, NotSupported
from torchstone.workloads.suites.base import (
    BuildSetting,
    ModelInfo,
    check_scale,
    find_model,
    list_model,
)
from torchstone.workloads.suites.huggingface_models import (
    CLASSES,
    HF_MODELS,
    QUICK,
    SPEECH,
    STANDARD,
    HfModel,
    make_inputs,
)
from torchstone.workloads.suites.vision import (
    dropout_notes,
    import_working,
    missing_library,
    no_warnings,
    package_folder,
    repair_torchvision,
    version_of,
    zero_config,
    zero_modules,
)
from torchstone.workloads.workload import Workload

LIBRARY = "transformers"

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Nothing is fetched and nothing is said. Read by transformers when it is imported."""

FULL_BATCH_NOTE = "the batch is the listed one, before the PyTorch dashboard divides it"


@dataclass(frozen=True)
class HuggingFaceSuite:
    """Satisfies `Suite`."""

    name: str = "huggingface"
    prefix: str = "hf"
    scales: tuple[str, ...] = SCALES

    def models(self) -> Sequence[ModelInfo]:
        """Every model; `missing` where transformers or this one of its models is not installed."""
        folder = package_folder(LIBRARY)
        reason = missing_library("torch", LIBRARY)
        return tuple(
            list_model(
                model.name,
                "audio" if model.task == SPEECH else "text",
                QUICK,
                STANDARD,
                reason or _missing_model(model, folder),
            )
            for model in HF_MODELS
        )

    def import_library(self, model: str = "") -> None:
        """Import torch and what all models share; a model's own module is small."""
        if reason := missing_library("torch", LIBRARY):
            raise NotSupported(reason)
        os.environ.update(ENVIRONMENT)
        repair_torchvision()
        import_working(f"{LIBRARY}.modeling_utils", LIBRARY)
        import_working(f"{LIBRARY}.utils.logging", LIBRARY).set_verbosity_error()

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The model in 32-bit floats on the CPU, with random weights, and its inputs."""
        entry = find_model(self.name, HF_MODELS, model)
        check_scale(self, setting.scale)
        config, made, dropouts = build_entry(entry, setting.scale)
        notes = list(dropouts)
        if entry.note:
            notes.append(entry.note)
        if setting.scale == "full":
            notes.append(FULL_BATCH_NOTE)
        if repaired := repair_torchvision():
            notes.append(repaired)
        inputs = make_inputs(entry, config, *entry.sizes(setting.scale))
        return Workload(made, inputs, notes=tuple(notes))


HUGGINGFACE = HuggingFaceSuite()


def build_entry(entry: HfModel, scale: str) -> tuple[Any, Any, tuple[str, ...]]:
    """Configuration and model with random weights and no dropout, and what was set to 0."""
    model_class = _model_class(entry)
    with no_warnings():
        config = _config(entry, model_class, scale)
        in_config = zero_config(config)
        made = model_class(config)
    return config, made, tuple(dropout_notes(in_config, zero_modules(made)))


def _config(entry: HfModel, model_class: Any, scale: str) -> Any:
    settings = copy.deepcopy(entry.settings(scale))
    if entry.task == CLASSES:
        # Else the first call finds it out and writes it down, and compiled code starts over.
        settings["problem_type"] = "single_label_classification"
    config = model_class.config_class(**settings)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    return config


def _model_class(entry: HfModel) -> Any:
    """By its own module: the class by its name in `transformers` takes no less, at times more."""
    module = f"{LIBRARY}.models.{entry.module}.modeling_{entry.module}"
    try:
        with no_warnings():
            return getattr(importlib.import_module(module), entry.model_class)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not module.startswith(error.name or "?"):
            needs = f"{entry.name} needs {error.name}, which is not installed"
            raise NotSupported(needs) from error
        raise NotSupported(_absent(entry)) from error


def _missing_model(entry: HfModel, folder: str) -> str:
    """Whether this version of the library has the model, seen without importing it."""
    source = os.path.join(folder, "models", entry.module, f"modeling_{entry.module}.py")
    return "" if os.path.exists(source) else _absent(entry)


def _absent(entry: HfModel) -> str:
    return f"{LIBRARY} {version_of(LIBRARY)} has no {entry.model_class}"

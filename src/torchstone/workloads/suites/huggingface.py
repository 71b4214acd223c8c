"""The HuggingFace suite: models of transformers from their configurations, with random weights."""

from __future__ import annotations

import copy
import importlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from torchstone.records import SCALES, NotSupported, UsageError
from torchstone.workloads.suites.base import BuildSetting, ModelInfo, check_scale, tier_of
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
    repair_torchvision,
    zero_config,
    zero_modules,
)
from torchstone.workloads.workload import Workload

LIBRARY = "transformers"
REMEDY = 'pip install "torchstone[suites]"'

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
        folder = _package_folder(LIBRARY)
        reason = _missing_library(folder)
        return tuple(
            ModelInfo(
                name=model.name,
                family="audio" if model.task == SPEECH else "text",
                tier=tier_of(model.name, QUICK, STANDARD),
                quick_modes=QUICK.get(model.name, ()),
                missing=reason or _missing_model(model, folder),
            )
            for model in HF_MODELS
        )

    def import_library(self, model: str = "") -> None:
        """Import torch and what all models share; a model's own module is small."""
        if reason := _missing_library(_package_folder(LIBRARY)):
            raise NotSupported(reason)
        os.environ.update(ENVIRONMENT)
        repair_torchvision()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module("transformers.modeling_utils")
                importlib.import_module("transformers.utils.logging").set_verbosity_error()
        except Exception as error:  # whatever a broken installation may raise
            raise NotSupported(f"{LIBRARY} cannot be imported: {_first_line(error)}") from error

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The model in 32-bit floats on the CPU, with random weights, and its inputs."""
        entry = _find(model)
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = _config(entry, model_class, scale)
        in_config = zero_config(config)
        made = model_class(config)
    return config, made, tuple(dropout_notes(in_config, zero_modules(made)))


def _find(name: str) -> HfModel:
    for model in HF_MODELS:
        if model.name == name:
            return model
    raise UsageError(
        f"huggingface has no model {name!r}.", "`torchstone list models huggingface` lists them."
    )


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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


def _missing_library(folder: str) -> str:
    if not _package_folder("torch"):
        return 'torch is not installed: pip install "torchstone[torch]"'
    return "" if folder else f"{LIBRARY} is not installed: {REMEDY}"


def _absent(entry: HfModel) -> str:
    try:
        version = metadata.version(LIBRARY)
    except metadata.PackageNotFoundError:
        version = "(version unknown)"
    return f"{LIBRARY} {version} has no {entry.model_class}"


def _package_folder(name: str) -> str:
    """Where a package is installed, found without importing it; empty where it is not."""
    try:
        spec = find_spec(name)
    except ValueError:  # a module that somebody put in its place
        return ""
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return places[0] if places else ""


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

"""Libraries that are installed but do not fit together, put right where that is harmless.

torchvision's compiled operators are built for one torch. Where they do not load (a CUDA build
beside a CPU torch, say), torchvision keeps quiet about it and then dies at import for want of the
*names* of two of its operators, and takes down whatever imports it: timm, and every model of
transformers. Classification models use neither operator, so declaring the names is enough.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import machinery, metadata
from importlib.util import find_spec
from typing import Any

OPERATORS = ("nms", "qnms")
"""What torchvision registers fake kernels for even when its operators did not load."""

SCHEMA = "{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def repair_torchvision() -> str:
    """Make torchvision importable here; call it before the first import of torchvision.

    Says in a sentence what was done, for a workload's notes; empty where nothing was needed, where
    torchvision is not installed, or where it was imported before. A torchvision whose operators
    load is left as it is. Equal answers however often it is called.
    """
    folder = package_folder("torchvision")
    return _repair(folder) if folder else ""


def package_folder(name: str) -> str:
    """Where a package is installed, found without importing it; empty where it is not."""
    try:
        spec = find_spec(name)
    except ValueError:  # a module that somebody put in its place
        return ""
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return places[0] if places else ""


@cache
def _repair(folder: str) -> str:
    if "torchvision" in sys.modules:
        return ""
    try:
        import torch
    except ImportError:
        return ""
    failure = _load_failure(torch, folder)
    if not failure:
        return ""
    missing = [name for name in OPERATORS if not hasattr(torch.ops.torchvision, name)]
    if not missing:
        return ""
    library = _library(torch)
    for name in missing:
        library.define(SCHEMA.format(name=name))
    names = " and ".join(f"torchvision::{name}" for name in missing)
    return (
        f"torchvision {_version()} has compiled operators that do not load with torch "
        f"{torch.__version__} ({failure}); {names} were declared without kernels so that it can be "
        "imported"
    )


def _load_failure(torch: Any, folder: str) -> str:
    """Why the compiled operators do not load, or empty where they do. What loads stays loaded."""
    files = _extension_files(folder)
    failures = [] if files else ["they are not installed"]
    for path in files:
        try:
            torch.ops.load_library(path)
        except (ImportError, OSError) as error:
            reason = str(error.__cause__ or error).replace(folder + os.sep, "")
            failures.append(" ".join(reason.split()) or type(error).__name__)
    return failures[0] if failures else ""


def _extension_files(folder: str) -> list[str]:
    """`_C.so`, and from 0.29 on `_C_stable.so`, where the operators move one after another."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    endings = tuple(machinery.EXTENSION_SUFFIXES)
    return [os.path.join(folder, n) for n in names if n.startswith("_C") and n.endswith(endings)]


@cache
def _library(torch: Any) -> Any:
    """The declarations live as long as this object does, so it is kept."""
    return torch.library.Library("torchvision", "DEF")


def _version() -> str:
    try:
        return metadata.version("torchvision")
    except metadata.PackageNotFoundError:
        return "(version unknown)"

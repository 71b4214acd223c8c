"""A checkout of pytorch/benchmark: where it is, what it lists, and what its models lack here.

Everything here reads files only. Importing even one of its models may take seconds, change global
state or download, so nothing is imported to make a list.
"""

from __future__ import annotations

import ast
import errno
import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from torchstone.machine.software import git_state
from torchstone.records import NotSupported, UsageError
from torchstone.workloads.load import map_nest
from torchstone.workloads.suites.base import BuildSetting, ModelInfo
from torchstone.workloads.suites.vision import zero_modules
from torchstone.workloads.workload import Workload, normalise_inputs

VARIABLE = "TORCHSTONE_TORCHBENCH"
"""Where the checkout is: set by hand or by `--torchbench`; workers inherit it."""

PACKAGE = "torchbenchmark"
MODELS = os.path.join(PACKAGE, "models")
_FAMILIES = {
    "COMPUTER_VISION": "vision",
    "NLP": "text",
    "SPEECH": "audio",
    "RECOMMENDATION": "recommendation",
    "REINFORCEMENT_LEARNING": "reinforcement",
    "GNN": "graphs",
    "OTHER": "other",
}
"""Names of the task groups in the checkout, and ours."""

STANDARD = frozenset(
    (
        *("BERT_pytorch", "dcgan", "demucs", "functorch_dp_cifar10", "hf_Bert", "lennard_jones"),
        *("maml", "nanogpt", "nvidia_deeprecommender", "phlippe_densenet", "phlippe_resnet"),
        *("pyhpc_equation_of_state", "pyhpc_isoneutral_mixing", "pyhpc_turbulent_kinetic_energy"),
        "tts_angular",
    )
)
"""The standard tier: models that were seen to build without an install step or a download."""


@dataclass(frozen=True)
class Checkout:
    """A folder that holds `torchbenchmark/models`."""

    path: str

    @property
    def label(self) -> str:
        """Its own name, for notes that must not tell where a person keeps things."""
        return os.path.basename(self.path)

    def model_folder(self, model: str) -> str:
        """Where a model's package is."""
        return os.path.join(self.path, MODELS, model)

    def remedy(self, model: str, package: str) -> str:
        """How to get a package that a model needs."""
        if os.path.isfile(os.path.join(self.model_folder(model), "install.py")):
            return f"run python install.py in {MODELS}/{model} of the checkout"
        return f"install {package}"


def need_checkout() -> Checkout:
    """The user's checkout; a `UsageError` where none is named, or a wrong path."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        raise UsageError(
            "No checkout of pytorch/benchmark is named.",
            f"Give --torchbench PATH, or set {VARIABLE}.",
        )
    path = os.path.realpath(os.path.expanduser(given))
    if not os.path.isdir(os.path.join(path, MODELS)):
        where = "does not exist" if not os.path.isdir(path) else f"has no {MODELS}"
        raise UsageError(
            f"{given} is not a checkout of pytorch/benchmark: it {where}.",
            f"Give the folder that git cloned, by --torchbench or {VARIABLE}.",
        )
    return Checkout(path)


@cache
def list_models(checkout: Checkout) -> tuple[ModelInfo, ...]:
    """Every package under `torchbenchmark/models`, with what it lacks, by name."""
    try:
        names = sorted(os.listdir(os.path.join(checkout.path, MODELS)))
    except OSError as error:
        raise UsageError(f"{checkout.path} cannot be read: {error.strerror}.") from None
    fronts = {name: os.path.join(checkout.model_folder(name), "__init__.py") for name in names}
    return tuple(
        _describe(checkout, name, front)
        for name, front in fronts.items()
        if name.isidentifier() and os.path.isfile(front)
    )


def _describe(checkout: Checkout, name: str, front: str) -> ModelInfo:
    tier = "standard" if name in STANDARD else "full"
    tree = _parse(front)
    if tree is None:
        return ModelInfo(name, tier=tier)  # importing it will say what is wrong, with the line
    missing = _missing_package(checkout, name, front, tree)
    reason = f"needs the package {missing}: {checkout.remedy(name, missing)}" if missing else ""
    return ModelInfo(name, family=_family(tree), tier=tier, missing=reason)


def _missing_package(checkout: Checkout, model: str, front: str, tree: ast.Module) -> str:
    """The first package that the model's file, or one it imports of the checkout, is without."""
    package_file = os.path.join(checkout.path, PACKAGE, "__init__.py")
    for path in dict.fromkeys((front, package_file, *_files_imported(checkout, front, tree))):
        for package in _packages(path):
            if not _is_there(package, checkout, os.path.dirname(path), model):
                return package
    return ""


def _parse(path: str) -> ast.Module | None:
    try:
        with open(path, encoding="utf-8") as file:
            return ast.parse(file.read(), path)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


@cache
def _packages(path: str) -> tuple[str, ...]:
    """Top-level packages that the file's own top level imports for certain. What is imported inside
    `try`, `if` or a function may never be needed; and where a file changes `sys.path`, its imports
    cannot be followed without running it."""
    tree = _parse(path)
    if tree is None or _changes_path(tree):
        return ()
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            found += [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.append(node.module.split(".")[0])
    return tuple(dict.fromkeys(found))


def _is_there(package: str, checkout: Checkout, beside: str, model: str) -> bool:
    if package in sys.stdlib_module_names:
        return True
    for folder in (checkout.path, beside, checkout.model_folder(model)):
        place = os.path.join(folder, package)
        if os.path.isdir(place) or os.path.isfile(place + ".py"):
            return True
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError, AttributeError):
        return True  # something odd stands in its place; building will tell


def _changes_path(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "path"
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
        for node in ast.walk(tree)
    )


def _files_imported(checkout: Checkout, front: str, tree: ast.Module) -> Iterator[str]:
    """Files of the checkout that the top level imports, one step away."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            base = _base_folder(checkout, front, node)
            if base is not None:
                yield from _module_files(base)
                for alias in node.names:
                    yield from _module_files(os.path.join(base, alias.name))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield from _module_files(os.path.join(checkout.path, *alias.name.split(".")))


def _base_folder(checkout: Checkout, front: str, node: ast.ImportFrom) -> str | None:
    """The path, without ending, of the module that `from … import` names, if it is of ours."""
    parts = node.module.split(".") if node.module else []
    if not node.level:
        return os.path.join(checkout.path, *parts) if parts[:1] == [PACKAGE] else None
    folder = os.path.dirname(front)
    for _ in range(node.level - 1):
        folder = os.path.dirname(folder)
    return os.path.join(folder, *parts)


def _module_files(base: str) -> Iterator[str]:
    for path in (base + ".py", os.path.join(base, "__init__.py")):
        if os.path.isfile(path):
            yield path


def _family(tree: ast.Module) -> str:
    """From the line `task = GROUP.NAME` of the class `Model`, where it is written so."""
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name != "Model":
            continue
        for line in node.body:
            if (
                isinstance(line, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == "task" for t in line.targets)
                and isinstance(line.value, ast.Attribute)
                and isinstance(line.value.value, ast.Name)
            ):
                return _FAMILIES.get(line.value.value.id, "")
    return ""


# A model of a checkout of pytorch/benchmark as a workload, through its `BenchmarkModel` API.
#
# Runs in the worker alone. The checkout's code may seed, patch and print as it likes; what would
# disturb the measurement is put back, and every reason why a model cannot run is told.


TESTS = {"inference": "eval", "training": "train"}
SMALL_BATCH = 4
"""A checkout has one size of each model; `@small` is a smaller batch, where the model allows it."""
REASON_LETTERS = 200
_NETWORK_LIBRARIES = ("urllib", "urllib3", "requests", "httpx", "httpcore", "huggingface_hub")
_NO_CUDA = ("Torch not compiled with CUDA", "Found no NVIDIA driver", "No CUDA GPUs are available")


def import_model(checkout: Checkout, model: str) -> ModuleType:
    """The model's package. `NotSupported` where a package is missing or data cannot be had."""
    if checkout.path not in sys.path:
        sys.path.insert(0, checkout.path)
    with _told(checkout, model, "import"), _generators_kept():
        return importlib.import_module(f"{PACKAGE}.models.{model}")


def build_model(checkout: Checkout, model: str, setting: BuildSetting) -> Workload:
    """The workload of one mode; the same module and inputs whatever runs it later."""
    made = getattr(import_model(checkout, model), "Model", None)
    if made is None:
        raise NotSupported(f"{model} defines no class Model")
    test = TESTS[setting.mode]
    _refuse_unimplemented(made, model, test)
    notes = [origin(checkout)]
    with _told(checkout, model, test), _generators_kept():
        benchmark = _construct(made, test, setting, notes)
        pair = _module_and_inputs(benchmark, model, setting)
    if pair is None:
        module, inputs = _invoked(benchmark, model, setting), ()
        notes.append("it has no get_module, so invoke() is called and its inputs are never fresh")
    else:
        module, inputs = pair
    return _workload(benchmark, module, inputs, setting, notes)


def _workload(
    benchmark: Any, module: Any, inputs: Any, setting: BuildSetting, notes: list[str]
) -> Workload:
    notes.append(f"batch size {getattr(benchmark, 'batch_size', 'unknown')}")
    dropped = zero_modules(module) if hasattr(module, "named_modules") else ()
    notes.append(f"dropout set to 0 after construction: {', '.join(dropped) or 'there was none'}")
    if setting.precision in ("fp32", "tf32"):
        module, inputs = _as_float32(module, inputs, notes)
    if setting.mode == "inference":
        return Workload(_with_gradients(benchmark, module, notes), inputs, notes=tuple(notes))
    notes.append("the loss is the output's own, else its mean square, not the checkout's")
    optimizer = _own_optimizer(benchmark, notes)
    return Workload(module, inputs, optimizer=optimizer, notes=tuple(notes))


def origin(checkout: Checkout) -> str:
    """Which checkout it was, for the notes: its folder's name and its commit."""
    # Only its own repository: the commit of one that it happens to lie in says nothing.
    own = os.path.exists(os.path.join(checkout.path, ".git"))
    state = git_state(checkout.path) if own else None
    if state is None:
        return f"from the checkout {checkout.label} (no commit known)"
    changed = ", with local changes" if state.dirty else ""
    return f"from the checkout {checkout.label} at {state.commit[:12]}{changed}"


def _construct(made: Any, test: str, setting: BuildSetting, notes: list[str]) -> Any:
    device = setting.device.split(":")[0]
    if setting.scale != "small":
        return made(test=test, device=device, batch_size=None)
    # No default batch size means that there is no such test; giving one would hide that.
    default = getattr(made, f"DEFAULT_{test.upper()}_BSIZE", None)
    if default is None or not getattr(made, "ALLOW_CUSTOMIZE_BSIZE", True):
        notes.append("its batch size cannot be chosen, so small is no smaller than full")
        return made(test=test, device=device, batch_size=None)
    return made(test=test, device=device, batch_size=min(SMALL_BATCH, default))


def _module_and_inputs(benchmark: Any, model: str, setting: BuildSetting) -> tuple[Any, Any] | None:
    """None where there is only `invoke`, which can serve for inference."""
    try:
        module, inputs = benchmark.get_module()
    except (NotImplementedError, AttributeError) as error:
        if isinstance(error, AttributeError) and hasattr(benchmark, "get_module"):
            raise
        if setting.mode == "inference" and callable(getattr(benchmark, "invoke", None)):
            return None
        raise NotImplementedError(f"get_module: {_line(error)}") from None
    if not callable(module):
        raise NotSupported(f"{model}: get_module gives a {type(module).__name__}, not a module")
    return module, inputs


def _refuse_unimplemented(made: Any, model: str, test: str) -> None:
    """A method that does nothing but raise says that the test is not meant to be run. We would not
    notice: it is the module that is timed, not the checkout's own loop."""
    if test == "train" and callable(getattr(made, "backward", None)):
        return  # trained in stages, without the method
    method = getattr(made, test, None)
    try:
        source = textwrap.dedent(inspect.getsource(method)) if method is not None else ""
        body = ast.parse(source).body
    except (OSError, TypeError, SyntaxError):
        return
    for statement in getattr(body[0], "body", []) if body else []:
        if isinstance(statement, ast.Raise) and (said := _not_implemented(statement.exc)):
            raise NotSupported(f"{model} does not support {test}: {said}")


def _not_implemented(raised: ast.expr | None) -> str:
    """What a `raise NotImplementedError` says; empty for any other."""
    called = raised.func if isinstance(raised, ast.Call) else raised
    if not isinstance(called, ast.Name) or called.id != "NotImplementedError":
        return ""
    given = raised.args[:1] if isinstance(raised, ast.Call) else []
    words = [str(one.value) for one in given if isinstance(one, ast.Constant)]
    return words[0] if words else called.id


@contextmanager
def _told(checkout: Checkout, model: str, doing: str) -> Iterator[None]:
    """What stops a model for a reason that is not its fault, said in one sentence. An error of any
    other kind is the model's own, and stays what it is."""
    try:
        yield
    except NotImplementedError as error:
        raise NotSupported(f"{model} does not support {doing}: {_line(error)}") from error
    except ImportError as error:
        package = (error.name or "").split(".")[0]
        absent = isinstance(error, ModuleNotFoundError) and package not in sys.modules
        if not package or not absent:  # it is there, but not as the model wants it
            raise NotSupported(f"{model} cannot be imported: {_line(error)}") from error
        remedy = checkout.remedy(model, package)
        raise NotSupported(f"{model} needs the package {package}: {remedy}") from error
    except Exception as error:
        if _is_out_of_reach(error):
            raise NotSupported(f"{model} needs data that is not here: {_line(error)}") from error
        if any(words in str(error) for words in _NO_CUDA):
            raise NotSupported(f"{model} needs CUDA: {_line(error)}") from error
        raise


def _is_out_of_reach(error: BaseException) -> bool:
    """A download that failed, or a file that an install step would have fetched."""
    if isinstance(error, OSError):
        return error.errno != errno.ENOMEM
    return type(error).__module__.split(".")[0] in _NETWORK_LIBRARIES


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= REASON_LETTERS else text[: REASON_LETTERS - 1] + "…"


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Checkouts replace `torch.manual_seed` by one that always seeds alike; seeds must count."""
    import torch

    seed, enabled = torch.manual_seed, torch.is_grad_enabled()
    try:
        yield
    finally:
        torch.manual_seed = seed
        torch.set_grad_enabled(enabled)


def _invoked(benchmark: Any, model: str, setting: BuildSetting) -> Any:
    """A module around `invoke`, so that variants and the contract find its weights."""
    import torch

    if setting.precision not in ("fp32", "tf32"):
        raise NotSupported(
            f"{model} has no get_module, so its inputs cannot be made {setting.precision}"
        )

    class Invoked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inner = getattr(benchmark, "model", None)
            self.inner = inner if isinstance(inner, torch.nn.Module) else None
            self.benchmark = benchmark

        def forward(self) -> Any:
            return self.benchmark.invoke()

    return Invoked()


def _with_gradients(benchmark: Any, module: Any, notes: list[str]) -> Any:
    """Some models differentiate inside their forward pass and say that they must be let."""
    import torch

    asked = getattr(benchmark, "eval_in_nograd", None)
    if not callable(asked) or asked() or not isinstance(module, torch.nn.Module):
        return module

    class WithGradients(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with torch.enable_grad():
                return self.inner(*args, **kwargs)

    notes.append("it asks for gradients in inference, and has them")
    return WithGradients()


def _as_float32(module: Any, inputs: Any, notes: list[str]) -> tuple[Any, Any]:
    """Some models come in half precision by default; an fp32 figure must be one."""
    import torch

    halves = (torch.float16, torch.bfloat16)
    if not isinstance(module, torch.nn.Module):
        return module, inputs
    kinds = sorted({str(p.dtype)[6:] for p in module.parameters() if p.dtype in halves})
    if not kinds:
        return module, inputs
    notes.append(f"the checkout makes it in {' and '.join(kinds)}; made float32 here")

    def cast(leaf: Any) -> Any:
        half = isinstance(leaf, torch.Tensor) and leaf.dtype in halves
        return leaf.float() if half else leaf

    given = normalise_inputs(inputs)
    return module.float(), type(given)(
        map_nest(given.args, cast), map_nest(dict(given.kwargs), cast)
    )


def _own_optimizer(benchmark: Any, notes: list[str]) -> Callable[[Any], Any] | None:
    """A new optimizer of the kind and settings of the model's own. Not the very one: the reference
    trains a copy of the module, and needs one for the copy."""
    ask = getattr(benchmark, "get_optimizer", None)
    try:
        own = ask() if callable(ask) else None
    except NotImplementedError:
        own = None
    if own is None or not hasattr(own, "defaults"):
        notes.append("plain SGD in place of the checkout's optimizer, which it does not tell")
        return None
    kind = type(own)
    known = inspect.signature(kind).parameters
    settings = {name: value for name, value in own.defaults.items() if name in known}
    groups = ", its parameter groups as one" if len(own.param_groups) > 1 else ""
    notes.append(f"{kind.__name__} with the settings of the checkout's optimizer{groups}")
    return lambda parameters: kind(parameters, **settings)

"""An arm built in this process: its step, fresh inputs for it, and the blocks that time it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import math
import os
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchstone.machine.processes import read_text
from torchstone.measure.loops import TimeBlock, statement_block, step_block
from torchstone.records import ArmSpec, Statement, UsageError
from torchstone.variants import (
    NotSupported,
    Prepared,
    before_loading,
    prepare,
    resolve_variant,
    uses_torch,
    with_techniques,
)
from torchstone.workloads import (
    Inputs,
    Workload,
    describe_shapes,
    draw,
    draw_at,
    load_workload,
    walk,
)
from torchstone.workloads.target import parse_target

# Statements: compiled into a function like `timeit`'s, setup run again before each block.

_TEMPLATE = """\
def _inner(_it, _timer):
{setup}
    _start = _timer()
    for _i in _it:
{stmt}
    return _timer() - _start
"""


def compile_statement(statement: Statement) -> Callable[[Any, Any], int]:
    """The function to be timed; a `UsageError` with the line for code that does not compile."""
    for what, code in (("setup", statement.setup), ("statement", statement.stmt)):
        try:
            compile(code, f"<{what}>", "exec")
        except SyntaxError as error:
            raise UsageError(
                f"The {what} is not valid Python: {error.msg} (line {error.lineno}).",
                "Quote it for the shell; give several lines as several arguments.",
            ) from None
    source = _TEMPLATE.format(
        setup=textwrap.indent(statement.setup or "pass", " " * 4),
        stmt=textwrap.indent(statement.stmt or "pass", " " * 8),
    )
    names: dict[str, Any] = {}
    try:
        exec(compile(source, "<torchstone timeit>", "exec"), names)
    except SyntaxError as error:
        raise UsageError(f"The statement cannot stand inside a function: {error.msg}.") from None
    inner: Callable[[Any, Any], int] = names["_inner"]
    return inner


# Which code a process runs: hashes of the user's own source files, so that an edit is noticed.
#
# Every process of an arm imports the target again, from the file as it is then. These are the
# target's own file and the modules imported from its folder; what is installed does not change by
# the minute.

GONE = "gone"
HASH_DIGITS = 16
_INSTALLED = ("site-packages", "dist-packages")
_OURS = "torchstone"


class Sources:
    """What was found of each file when it was first looked at: at best, just before its import."""

    def __init__(self, arm: ArmSpec) -> None:
        self._here = os.getcwd()  # before user code may change it
        self._folder = _checkout(arm.folder)
        self._target = None if arm.statement is not None else parse_target(arm.target)
        self._found: dict[str, str] = {}
        self.look()

    def look(self) -> Mapping[str, str]:
        """Hash what has been imported since; returns all by path."""
        for path in self._files():
            if path not in self._found:
                self._found[path] = hash_file(path)
        return dict(self._found)

    def _files(self) -> Iterator[str]:
        target = self._target
        own = ""
        if target is None or target.kind == "suite":
            if not self._folder:
                return  # statements and models of suites have no file of the user's own
        elif target.kind == "file":
            own = os.path.normpath(os.path.join(self._here, target.place))
        else:
            names = (target.place.partition(".")[0], target.place)
            files = [self._file_of(sys.modules.get(name)) for name in names]
            own = files[0] or files[1]  # a package without an `__init__.py` has no file
        if not own and not self._folder:
            return
        if own:
            yield own
        folder = os.path.join(self._folder or os.path.dirname(own), "")
        for name, module in list(sys.modules.items()):
            file = self._file_of(module)
            if file.startswith(folder) and not _is_installed(file) and name.split(".")[0] != _OURS:
                yield file

    def digest(self) -> str:
        """One hash over all of them, and over libraries mapped from the arm's checkout; paths count
        from there, so that two checkouts of the same code have the same. Empty where the arm has
        neither a folder nor a file, or runs what is installed inside its checkout."""
        found = self.look()
        if not (found or self._folder) or self._installed_inside():
            return ""
        folder = self._folder or os.path.dirname(next(iter(found)))
        whole = {**found, **{path: hash_file(path) for path in _mapped_from(folder)}}
        lines = sorted(
            f"{os.path.relpath(path, folder)} {hashed}" for path, hashed in whole.items()
        )
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:HASH_DIGITS]

    def _installed_inside(self) -> bool:
        """Whether the checkout has an environment of its own: nobody can tell which of its
        packages were built from the checkout, and which are a library's gigabytes."""
        inside = os.path.join(self._folder, "")
        files = [self._file_of(module) for module in list(sys.modules.values())]
        return bool(self._folder) and any(
            file.startswith(inside) and _is_installed(file) for file in files
        )

    def _file_of(self, module: Any) -> str:
        """The source file; not what others have made of it (`.so`), which may be made again."""
        file = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(file, str) or not file.endswith(".py"):
            return ""
        return os.path.normpath(os.path.join(self._here, file))


def _checkout(folder: str) -> str:
    """The whole checkout around an arm's folder, which may be a part of it; else the folder."""
    parts = [folder]
    while parts[-1] != os.path.dirname(parts[-1]):
        parts.append(os.path.dirname(parts[-1]))
    return next((one for one in parts if os.path.exists(os.path.join(one, ".git"))), folder)


def _mapped_from(folder: str) -> list[str]:
    """Compiled libraries in this process that lie in the folder and are not installed."""
    inside, maps = os.path.join(folder, ""), read_text("/proc/self/maps") or ""
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if ".so" in line}
    return [path for path in paths if path.startswith(inside) and not _is_installed(path)]


def _is_installed(file: str) -> bool:
    library = os.path.join(sysconfig.get_paths()["stdlib"], "")
    return file.startswith(library) or any(part in _INSTALLED for part in file.split(os.sep))


def hash_file(path: str) -> str:
    """Of its content as it is now."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:HASH_DIGITS]
    except OSError:
        return GONE


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """The names of files that both know and that differ."""
    names = {os.path.basename(p) for p, found in before.items() if after.get(p, found) != found}
    return tuple(sorted(names))


# The one place that knows accelerators, written against `torch.accelerator`.
#
# A `Device` says how to wait for queued work and how much memory the allocator has held. On the CPU
# there is nothing to wait for, and memory is the operating system's to tell.


@dataclass(frozen=True)
class Device:
    """What the timed loop needs to know about where the work runs."""

    name: str
    synchronize: Callable[[], None] | None = None
    reset_peak: Callable[[], None] | None = None
    peak_bytes: Callable[[], int] | None = None
    held_bytes: Callable[[], int] | None = None


CPU = Device("cpu")


def find_device(name: str) -> Device:
    """The device by name; `NotSupported` where this machine or this torch has none of the kind."""
    kind = name.split(":")[0]
    if kind == "cpu":
        return CPU
    torch = sys.modules.get("torch")
    if torch is None:
        raise NotSupported(f"{name}: the target does not use torch")
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or not accelerator.is_available():
        raise NotSupported(f"{name}: this torch finds no accelerator on this machine")
    current = accelerator.current_accelerator()
    if current is None or current.type != kind:
        raise NotSupported(f"{name}: the accelerator here is {current and current.type}")
    return accelerator_device(name, accelerator)


def accelerator_device(name: str, accelerator: Any) -> Device:
    """A device on top of anything that looks like `torch.accelerator`."""
    return Device(
        name,
        synchronize=accelerator.synchronize,
        reset_peak=getattr(accelerator, "reset_peak_memory_stats", None),
        peak_bytes=getattr(accelerator, "max_memory_allocated", None),
        held_bytes=getattr(accelerator, "memory_allocated", None),
    )


RING_SLOTS = 64
RING_BYTES = 64 * 1024 * 1024
"""Inputs of one turn: all fresh up to these limits, then the ring goes round."""

OPTIMIZERS_IMPORT = ("torch._dynamo",)
"""What torch's optimizers import when the first one is made: some 70 MB that are not the model's,
and that a compiled arm has imported before its memory is looked at."""

Phase = Callable[[str], None]


@dataclass(frozen=True)
class Built:
    """What the loops need. A statement has `inner` and no workload."""

    arm: ArmSpec
    device: Device
    workload: Workload | None = None
    prepared: Prepared | None = None
    inner: Callable[[Any, Any], int] | None = None

    @property
    def is_statement(self) -> bool:
        """Timed in `timeit` blocks, without inputs or outputs."""
        return self.inner is not None

    def inputs(self, seed: int, shape: int = 0) -> Inputs:
        """Inputs for one call, in the arm's precision and on its device."""
        assert self.workload is not None
        assert self.prepared is not None
        return self.prepared.cast(draw_for(self.arm, self.workload, seed, shape))

    def call(self, inputs: Inputs) -> Any:
        """One step, waited for."""
        assert self.prepared is not None
        output = self.prepared.step(*inputs.args, **inputs.kwargs)
        if self.device.synchronize is not None:
            self.device.synchronize()
        return output

    def ring(self, seed: int, slots: int, timed: bool = False) -> list[Inputs]:
        """`slots` fresh inputs, fewer where they would take too much memory.

        All of the base shape; in `timed` turns of an arm whose shapes vary, whole passes through
        the others.
        """
        shapes = self.timed_shapes if timed else (0,)
        once = [self.inputs(seed + i, shape) for i, shape in enumerate(shapes)]
        size = max(1, sum(map(inputs_bytes, once)))
        passes = min(min(slots, RING_SLOTS) // len(shapes), RING_BYTES // size)
        passes = max(2 if len(shapes) == 1 else 1, passes)
        more = range(len(shapes), passes * len(shapes))
        return once + [self.inputs(seed + i, shapes[i % len(shapes)]) for i in more]

    @property
    def timed_shapes(self) -> tuple[int, ...]:
        """The shapes that a sample goes through, in order."""
        return tuple(range(1, self.arm.shapes + 1)) if self.arm.shapes > 1 else (0,)

    def whole_passes(self, loops: int) -> int:
        """At least `loops` calls, every shape equally often: no sample is of small ones alone."""
        return -(-loops // self.arm.shapes) * self.arm.shapes

    def block(self, ring: list[Inputs], loops: int) -> TimeBlock:
        """The function that times one sample."""
        if self.inner is not None:
            assert self.arm.statement is not None
            return statement_block(self.inner, loops, self.arm.statement.clock)
        assert self.prepared is not None
        return step_block(self.prepared.step, ring, loops, self.device.synchronize)


def build(arm: ArmSpec, phase: Phase, given: Workload | None = None) -> Built:
    """Import and build. `phase` is called before each part, so that a death can be placed.

    `given` is a workload that is there already, of a session; else the target is loaded.
    """
    if arm.statement is not None:
        phase("build")
        return Built(arm, CPU, inner=compile_statement(arm.statement))
    phase("import")
    import_variant(arm)
    before_loading(arm.variant)
    workload = with_techniques(given or load_workload(arm, phase), arm.variant)
    set_threads(arm)
    device = find_device(arm.device)
    prepared = prepare(workload, draw_for(arm, workload, arm.seed), arm)
    if arm.shapes > 1:
        varied = f"shapes varied: {describe_shapes(workload, arm.seed, arm.shapes)}"
        prepared = replace(prepared, notes=(*prepared.notes, varied))
    return Built(arm, device, workload, prepared)


def draw_for(arm: ArmSpec, workload: Workload, seed: int, shape: int = 0) -> Inputs:
    """Inputs as the arm wants them: of the one shape, or of one of its shapes."""
    return draw_at(workload, seed, shape) if arm.shapes > 1 else draw(workload, seed)


def import_variant(arm: ArmSpec) -> None:
    """Find the variant while the path is still as we made it, and import what it runs by."""
    variant = resolve_variant(arm.variant)
    if _wants_torch(arm):
        _import_torch(arm)
    wanted = tuple(getattr(variant, "modules", ()))
    if arm.mode == "training":
        wanted += OPTIMIZERS_IMPORT
    for name in wanted:
        with contextlib.suppress(ImportError):  # whoever uses it will say so
            importlib.import_module(name)


def _wants_torch(arm: ArmSpec) -> bool:
    return uses_torch(arm.variant) or arm.mode == "training" or arm.precision != "fp32"


def _import_torch(arm: ArmSpec) -> None:
    """Before the memory baseline is taken, so that torch itself never counts as the model's."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise NotSupported(f"{arm.variant} needs torch, and this interpreter has none") from None


def set_threads(arm: ArmSpec) -> None:
    """OMP_NUM_THREADS is in the environment already; torch has a say of its own."""
    torch = sys.modules.get("torch")
    if arm.threads is not None and torch is not None:
        torch.set_num_threads(arm.threads)


THREADED_LIBRARIES = {
    "openblas": (
        *("openblas_get_num_threads", "openblas_get_num_threads64_"),
        *("scipy_openblas_get_num_threads", "scipy_openblas_get_num_threads64_"),
    ),
    "mkl_rt": ("MKL_Get_Max_Threads",),
}
"""A part of a library's file name, and the functions that tell its threads: OpenBLAS by how it was
built, numpy's own copy with a prefix."""


def thread_counts() -> dict[str, int]:
    """What the libraries that are loaded say they will use."""
    torch, found = sys.modules.get("torch"), dict[str, int]()
    if torch is not None:
        found = {"torch": torch.get_num_threads(), "interop": torch.get_num_interop_threads()}
    for name, functions in THREADED_LIBRARIES.items():
        counts = [n for path in _loaded(name) if (n := _ask_library(path, functions))]
        if counts:
            found[name.removesuffix("_rt")] = max(counts)
    return found


def _loaded(name: str) -> list[str]:
    """The files of libraries of this name that are mapped into this process."""
    lines = (read_text("/proc/self/maps") or "").splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if name in line.rpartition("/")[2]}
    return sorted(path for path in paths if ".so" in path)


def _ask_library(path: str, functions: Sequence[str]) -> int:
    """0 where it has none of them, or cannot be opened again."""
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return 0
    for function in functions:
        if hasattr(library, function):
            return int(getattr(library, function)())
    return 0


def inputs_bytes(inputs: Inputs) -> int:
    """Memory of the tensors and arrays of one call."""
    total = 0
    for _, leaf in walk((inputs.args, inputs.kwargs), ""):
        size = getattr(leaf, "nbytes", 0)
        total += int(size) if isinstance(size, (int, float)) and math.isfinite(size) else 0
    return total

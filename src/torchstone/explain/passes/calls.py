"""Every op of a step with the source line that called it, the tensors it read and wrote, and its
time: what is needed to name a cause in the user's code.

Ops are seen by a dispatch mode, each some microseconds slower than it is. So the times here only
divide what the ledger has measured; they are never amounts of their own.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from torchstone.measure.loops import wall_clock
from torchstone.workloads import Inputs
from torchstone.workloads.load import walk

GIVEN, KEPT, MADE = "given", "kept", "made"
"""Where a tensor comes from: an argument of the step, something that was there before it (a
parameter, a buffer, a global), or an op of the step."""
MOST_CALLS = 50_000
"""Of one step: more are not recorded, and no cause is looked for."""
MOST_HASHED = 1 << 22
"""Bytes of a value that are compared between steps; of larger ones the first so many."""
CONTIGUOUS_TRIES = 5
ENTRY_CALLS = 100
_NO_OPS = "profiler::"
_UNINITIALISED = ("aten::empty", "aten::new_empty")


@dataclass(frozen=True)
class Frame:
    """A place in the user's code."""

    file: str
    function: str
    line: int


@dataclass(frozen=True)
class Seen:
    """A tensor as an op had it. `storage` is a number of the memory that it lies in, good for one
    step; `whole` is how many elements that memory has."""

    storage: int
    offset: int
    shape: tuple[int, ...]
    dtype: str
    whole: int
    origin: str = MADE
    strided: bool = False
    """An argument of the step that is not contiguous, as it was given, or made of one and not
    contiguous for that reason."""

    @property
    def numel(self) -> int:
        """Elements."""
        made = 1
        for size in self.shape:
            made *= size
        return made


@dataclass(frozen=True)
class Call:
    """One call of an op."""

    op: str
    stack: tuple[Frame, ...]
    """The user's frames, the outermost first; empty where torch called it by itself."""
    entered: tuple[int, ...] = ()
    """For each frame a number of its own: the same as long as the function has not returned."""
    inputs: tuple[Seen, ...] = ()
    outputs: tuple[Seen, ...] = ()
    scalars: str = ""
    """The arguments that are no tensors."""
    ns: float = 0.0
    view: bool = False
    writes: bool = False
    random: bool = False
    backward: bool = False
    """Called by autograd's engine, which knows no source lines."""
    constant: bool = False
    """Made of nothing that came with the step."""
    value: int | None = None
    """A checksum of what a constant came to."""
    contiguous_ns: float | None = None
    """Its time with contiguous copies of its strided inputs, and `strided_ns` as it is."""
    strided_ns: float | None = None


class Unrecorded(Exception):
    """The step cannot be recorded; the text says why."""


def record_steps(
    step: Callable[..., Any], ring: Sequence[Inputs], count: int
) -> list[tuple[Call, ...]]:
    """`count` steps, each with inputs of its own as far as there are any."""
    found = []
    for number in range(count):
        inputs = ring[number % len(ring)]
        found.append(tuple(_recorded(step, inputs)))
    return found


def entry_ns() -> float:
    """What it takes to call an op at all, seen from here: a view has no kernel."""
    import torch

    one = torch.zeros(1)

    def views() -> None:
        for _ in range(ENTRY_CALLS):
            one.view(1)

    return median(call.ns for call in _recorded(views, Inputs()))


def _recorded(step: Callable[..., Any], inputs: Inputs) -> list[Call]:
    from torch.utils._python_dispatch import TorchDispatchMode

    recorder = Recorder(inputs)

    class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return recorder.call(func, args, kwargs or {})

    with Recording():  # type: ignore[no-untyped-call]
        step(*inputs.args, **inputs.kwargs)
    return recorder.calls


class Recorder:
    """The calls of one step, in order."""

    def __init__(self, inputs: Inputs) -> None:
        import torch

        self.calls: list[Call] = []
        self._torch = torch
        self._stacks = _Stacks()
        self._numbers: dict[int, int] = {}
        self._origins: dict[int, str] = {}
        self._varying: set[int] = set()
        self._strided: set[tuple[Any, ...]] = set()
        self._arrays: list[tuple[int, int]] = []
        for _, leaf in walk((inputs.args, dict(inputs.kwargs)), ""):
            self._add_input(leaf)

    def _add_input(self, leaf: Any) -> None:
        if isinstance(leaf, self._torch.Tensor):
            number = self._number(leaf, GIVEN)
            self._varying.add(number)
            if leaf.layout == self._torch.strided and not _is_plain(self._torch, leaf):
                self._strided.add((number, *_geometry(leaf)))
        elif hasattr(leaf, "__array_interface__"):
            start = leaf.__array_interface__["data"][0]
            self._arrays.append((start, start + max(1, leaf.nbytes)))

    def call(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Run the op and write it down."""
        if len(self.calls) >= MOST_CALLS:
            raise Unrecorded(f"a step has more than {MOST_CALLS:,} ops")
        tensors = list(self._tensors((args, kwargs)))
        read = [self._seen(tensor) for tensor in tensors]
        started = wall_clock()
        result = func(*args, **kwargs)
        ns = wall_clock() - started
        writes = bool(func._schema.is_mutable)
        storages = {one.storage for one in read}
        made = list(self._tensors(result))
        known = [self._cdata(tensor) in self._numbers for tensor in made]
        view = not writes and any(
            old and self._numbers[self._cdata(tensor)] in storages
            for tensor, old in zip(made, known, strict=True)
        )
        random = self._torch.Tag.nondeterministic_seeded in func.tags
        constant = not random and not any(one.storage in self._varying for one in read)
        written = [self._made(tensor, view or writes, constant) for tensor in made]
        if writes and not constant:
            self._varying.update(one.storage for one in written)
        name = func.name().partition(".")[0]
        if name.startswith(_NO_OPS):
            return result
        tried: tuple[float | None, float | None] = None, None
        if any(one.strided for one in read) and not (writes or random):
            plain = [self._contiguous(nest) for nest in (args, dict(kwargs))]
            self._inherit(made, func(*plain[0], **plain[1]))
            if not view:
                tried = self._try_contiguous(func, args, kwargs, plain)
        value = None
        if constant and not view and not name.startswith(_UNINITIALISED):
            value = self._checksum(made)
        self.calls.append(
            Call(
                name,
                *self._stacks.here(),
                tuple(read),
                tuple(written),
                _scalars(args, kwargs, self._torch),
                float(ns),
                view,
                writes,
                random,
                self._torch._C._current_autograd_node() is not None,
                constant,
                value,
                *tried,
            )
        )
        return result

    def _tensors(self, nest: Any) -> Iterator[Any]:
        if isinstance(nest, self._torch.Tensor):
            yield nest
        elif isinstance(nest, (tuple, list)):
            for one in nest:
                yield from self._tensors(one)
        elif isinstance(nest, dict):
            yield from self._tensors(list(nest.values()))

    def _cdata(self, tensor: Any) -> int:
        try:
            return int(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):  # sparse ones and the like have none
            return id(tensor)

    def _number(self, tensor: Any, origin: str) -> int:
        """Of its memory; a new one where it was not seen before."""
        key = self._cdata(tensor)
        if key not in self._numbers:
            self._numbers[key] = len(self._origins)
            self._origins[len(self._origins)] = origin
        return self._numbers[key]

    def _made(self, tensor: Any, same_memory: bool, constant: bool) -> Seen:
        """What an op returned. Memory that was freed comes back under its old address: it is new
        unless the op works on the memory that it was given."""
        key = self._cdata(tensor)
        if not same_memory or key not in self._numbers:
            self._numbers[key] = len(self._origins)
            self._origins[len(self._origins)] = MADE
            if not constant:
                self._varying.add(self._numbers[key])
        return self._seen(tensor)

    def _seen(self, tensor: Any) -> Seen:
        new = self._cdata(tensor) not in self._numbers
        number = self._number(tensor, KEPT)
        if new and any(low <= tensor.data_ptr() < high for low, high in self._arrays):
            self._origins[number] = GIVEN
            self._varying.add(number)
        shape, stride, offset = _geometry(tensor)
        return Seen(
            number,
            offset,
            shape,
            str(tensor.dtype).removeprefix("torch."),
            _whole(tensor),
            self._origins[number],
            (number, shape, stride, offset) in self._strided,
        )

    def _inherit(self, made: Sequence[Any], otherwise: Any) -> None:
        """What is strided only because its input is: an elementwise op and a view pass that on, so
        that an op behind them pays for it."""
        for tensor, plain in zip(made, self._tensors(otherwise), strict=True):
            if _is_plain(self._torch, plain) and not _is_plain(self._torch, tensor):
                self._strided.add((self._numbers[self._cdata(tensor)], *_geometry(tensor)))

    def _try_contiguous(
        self, func: Any, args: Any, kwargs: Any, plain: Sequence[Any]
    ) -> tuple[float, float]:
        """How long the op takes with contiguous inputs, and with those it was given."""
        asked = dict(kwargs).get("memory_format") == self._torch.contiguous_format
        nothing = func.name().startswith("aten::clone") and asked
        best = [float("inf"), float("inf")]
        for _ in range(CONTIGUOUS_TRIES):
            for place, (some, named) in enumerate((plain, (args, kwargs))):
                started = wall_clock()
                func(*some, **named)
                best[place] = min(best[place], wall_clock() - started)
        return (0.0 if nothing else best[0]), best[1]

    def _contiguous(self, nest: Any) -> Any:
        if isinstance(nest, self._torch.Tensor):
            return nest.contiguous() if self._seen(nest).strided else nest
        if isinstance(nest, (tuple, list)):
            return type(nest)(self._contiguous(one) for one in nest)
        if isinstance(nest, dict):
            return {key: self._contiguous(one) for key, one in nest.items()}
        return nest

    def _checksum(self, made: Sequence[Any]) -> int | None:
        found = 0
        for tensor in made:
            if tensor.device.type != "cpu" or tensor.layout != self._torch.strided:
                return None
            flat = tensor.detach().reshape(-1)
            some = flat[: max(1, MOST_HASHED // max(1, flat.element_size()))].contiguous()
            found = zlib.crc32(bytes(some.view(self._torch.uint8).numpy()), found)
        return found


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Contiguous, or images with their channels last."""
    return bool(
        tensor.is_contiguous()
        or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))
        or (tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d))
    )


def _geometry(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    shape = tuple(int(n) for n in tensor.shape)
    try:
        return shape, tuple(int(n) for n in tensor.stride()), int(tensor.storage_offset())
    except (NotImplementedError, RuntimeError):
        return shape, (), 0


def _whole(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().nbytes()) // max(1, int(tensor.element_size()))
    except (NotImplementedError, RuntimeError):
        return int(tensor.numel())


def _scalars(args: Any, kwargs: Mapping[str, Any], torch: Any) -> str:
    def plain(nest: Any) -> Any:
        if isinstance(nest, torch.Tensor):
            return "T"
        if isinstance(nest, (tuple, list)):
            return [plain(one) for one in nest]
        return nest

    return repr((plain(args), sorted((key, str(plain(one))) for key, one in kwargs.items())))[:400]


class _Stacks:
    """Who called: frames of the user's code, without torch's, Python's own and ours."""

    def __init__(self) -> None:
        import torch

        self._ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        self._torch = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
        self._python = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
        self._kinds: dict[Any, str] = {}
        self._last: list[tuple[Any, int]] = []
        """The frames of the last op, held so that no new one can be taken for one of them."""
        self._entered = 0

    def here(self) -> tuple[tuple[Frame, ...], tuple[int, ...]]:
        """Up to the frame of ours that called the step, and the number of each frame."""
        frames: list[Any] = []
        frame: Any = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            kind = self._kinds.get(code) or self._kinds.setdefault(code, self._kind(code))
            if kind == "ours":
                break
            if kind == "user":
                frames.append(frame)
            frame = frame.f_back
        frames.reverse()
        known = self._last
        self._last = []
        for place, one in enumerate(frames):
            if place < len(known) and known[place][0] is one:
                self._last.append(known[place])
            else:
                self._entered += 1
                self._last.append((one, self._entered))
        stack = (Frame(f.f_code.co_filename, f.f_code.co_name, f.f_lineno) for f in frames)
        return tuple(stack), tuple(number for _, number in self._last)

    def _kind(self, code: Any) -> str:
        file = os.path.abspath(code.co_filename)
        if file.startswith(self._ours + os.sep):
            return "library" if file == os.path.abspath(__file__) else "ours"
        library = file.startswith(self._python) and "site-packages" not in file
        if library or file.startswith(self._torch) or code.co_filename.startswith("<"):
            return "library"
        return "user"

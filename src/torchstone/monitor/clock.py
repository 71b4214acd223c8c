"""The marks of a step: at each, the time since the last one goes to a phase, so that the phases add
up to the wall time. All that runs in the training thread is here.

Where marks are set: the autograd entry, the optimizer's global hooks, the DataLoader's iterator.

No module gets a hook: under `torch.compile` those fire twice, are traced into the graph, or never
run. Everything is put back when the last monitor closes.

What an accelerator did in each phase: events from a pool, recorded between the phases and read
later by `query()`. Nothing ever waits for the device; steps whose events it has not reached within
`MOST_WAITING_EVENTS` steps are dropped, and counted.
"""

from __future__ import annotations

import functools
import gc
import itertools
import math
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from time import perf_counter_ns as _now
from typing import Any, NamedTuple

MOST_WAITING_EVENTS = 1000
"""Steps whose events are not read yet: a device is never that far behind a program."""
Marks = list[tuple[str, Any]]


class DeviceTimes:
    """Marks of the training's thread; `look` is the monitor's."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._pool: deque[Any] = deque()
        self._open: Marks = []
        self._waiting: deque[Marks] = deque()
        self.dropped = 0

    def begin(self) -> None:
        """A step begins; one that was begun and not ended is forgotten."""
        self._pool.extend(event for _, event in self._open)
        self._open = []
        self.mark("")

    def mark(self, phase: str) -> None:
        """What the program has asked of the device since the last mark was this phase."""
        try:
            event = self._pool.popleft() if self._pool else self._make()
            event.record()
        except Exception:  # a device that fails is the training's to notice
            return
        self._open.append((phase, event))

    def end(self) -> None:
        """The step is over."""
        if len(self._open) > 1:
            self._waiting.append(self._open)
            self._open = []

    def look(self) -> tuple[int, dict[str, int]]:
        """Steps that the device has finished since the last look, and nanoseconds by phase."""
        steps, sums = 0, Counter[str]()
        while self._waiting and self._waiting[0][-1][1].query():
            marks = self._waiting.popleft()
            for (_, begin), (phase, end) in itertools.pairwise(marks):
                sums[phase] += round(begin.elapsed_time(end) * 1e6)
            self._pool.extend(event for _, event in marks)
            steps += 1
        while len(self._waiting) > MOST_WAITING_EVENTS:
            self._pool.extend(event for _, event in self._waiting.popleft())
            self.dropped += 1
        return steps, dict(sums)


def device_times(torch: Any) -> DeviceTimes | None:
    """Of the accelerator in use; None without one, or where its events have no times."""
    try:
        kind = torch.accelerator.current_accelerator()
        if kind is None or not torch.accelerator.is_available():
            return None
        torch.Event(device=kind.type, enable_timing=True)
    except Exception:  # not every accelerator has events that tell the time
        return None
    return DeviceTimes(lambda: torch.Event(device=kind.type, enable_timing=True))


MOST_WAITING = 200_000
"""Steps that wait to be added up. Beyond that the oldest are lost, which their numbers show."""
SCHEDULER_EVERY_NS = 10_000_000
"""A look at the scheduler's counters is a system call: 4 µs by itself, up to 60 µs seen between the
steps of a busy machine. Once in 10 ms that stays under 1 % of the time."""
MOST_LEAVES = 16
"""Tensors of a batch that are looked at."""
MOST_SIGNATURES = 10_000
"""Different batches that are told apart; a loop over texts may have thousands of lengths."""
UNKNOWN = -1
MANY = -2
"""The signature of a batch beyond `MOST_SIGNATURES`."""


class StepRow(NamedTuple):
    """One step. Times are nanoseconds; `UNKNOWN` where nothing could be marked."""

    step: int
    end: int
    gap: int
    data: int
    forward: int
    backward: int
    collective: int
    optimizer: int
    other: int
    backwards: int
    optimizers: int
    loss: float
    lossless: int
    """1 where no loss could be read: a NaN is then not one of the training's."""
    signature: int
    training: int
    """1, 0, or `UNKNOWN`."""
    profiled: int


Leaf = tuple[str, tuple[int, ...], str, str]
"""Name, shape, dtype and device."""


class StepClock:
    """The step that is running in one thread."""

    __slots__ = (
        "_at",
        "_backward_began",
        "_backwards",
        "_data",
        "_depth",
        "_forward",
        "_gap",
        "_lead",
        "_lead_steps",
        "_loader_seen",
        "_loss",
        "_lossless",
        "_optimizer",
        "_optimizers",
        "_other",
        "_ready",
        "_scheduler_at",
        "_signature",
        "_training",
        "auto",
        "backward",
        "between",
        "collective",
        "device",
        "model",
        "opened",
        "profiled",
        "ranks",
        "rows",
        "scheduler",
        "scheduler_file",
        "signatures",
        "step",
        "tensor",
        "thread",
    )

    def __init__(self, tensor: Any, step: int = 0, model: Any = None, auto: bool = False) -> None:
        self.tensor = tensor
        """The class of tensors; torch is not imported here."""
        self.step = step
        self.model = model
        self.auto = auto
        """Whether a DataLoader's batches, or else the optimizer's steps, begin a step."""
        self.ranks = False
        """Whether gradients are exchanged with other ranks at the end of backward."""
        self.thread = threading.get_ident()
        self.scheduler_file = _scheduler_file()
        self.rows: deque[StepRow] = deque(maxlen=MOST_WAITING)
        self.scheduler: deque[tuple[int, bytes]] = deque(maxlen=MOST_WAITING)
        self.signatures: dict[Any, int] = {}
        self.opened = False
        self.between: Callable[[], None] | None = None
        """Called after each step, where somebody wants that."""
        self.profiled = 0
        self.device: DeviceTimes | None = None
        """Marks on an accelerator, where there is one."""
        self._lead = 0
        self._lead_steps = 0
        self._loader_seen = False
        self._depth = self._gap = 0
        self._signature = UNKNOWN
        self._at = self._scheduler_at = _now()
        self._reset(0)

    def _reset(self, data: int) -> None:
        self._data = data
        self._forward = self._optimizer = self._other = 0
        self.backward = self.collective = 0
        self._backwards = self._optimizers = 0
        self._loss = math.nan
        self._lossless = 1
        self._ready = self._lead_steps = 0
        self._training = UNKNOWN

    # Where batches come from.

    def fetch_begins(self) -> None:
        """The body of a step is over, and the next batch is asked for."""
        now = _now()
        if self.opened:
            self._close(now)
        else:
            self._gap = now - self._at
        self._at = now

    def fetch_ends(self, batch: Any) -> None:
        """The batch is there, and the body begins."""
        now = _now()
        self._reset(now - self._at)
        self._at = now
        self.opened = self._loader_seen = True
        if self.device is not None:
            self.device.begin()
        try:
            key = self._describe(batch)
            found = self.signatures.get(key)
            if found is None:
                found = MANY
                if len(self.signatures) < MOST_SIGNATURES:
                    found = self.signatures[key] = len(self.signatures)
        except Exception:  # a batch may be anything; a training never ends because of it
            found = UNKNOWN
        self._signature = found

    def _describe(self, batch: Any) -> Any:
        tensor = self.tensor
        if isinstance(batch, tensor):
            return (batch.shape, batch.dtype, batch.device)
        if isinstance(batch, (list, tuple)):
            return tuple(
                (one.shape, one.dtype, one.device)
                for one in batch[:MOST_LEAVES]
                if isinstance(one, tensor)
            )
        if isinstance(batch, Mapping):
            return tuple(
                (name, one.shape, one.dtype, one.device)
                for name, one in list(batch.items())[:MOST_LEAVES]
                if isinstance(one, tensor)
            )
        return None

    # The autograd engine and the optimizer.

    def backward_begins(self, loss: Any) -> None:
        """What came before it is the forward pass, the loss included."""
        self._depth += 1
        if self._depth > 1:  # a checkpointed part runs its own backward inside
            return
        now = _now()
        if self.device is not None:
            self.device.mark("forward")
        if self.opened:
            self._forward += now - self._at
            self._take_loss(loss)
            model = self.model
            if model is not None:
                self._training = 1 if model.training else 0
        self._backwards += 1
        self._ready = 0
        self._at = self._backward_began = _now()
        if self.opened:
            self._other += self._at - now  # our own

    def _take_loss(self, loss: Any) -> None:
        try:
            if not isinstance(loss, self.tensor) or loss.dim() or not loss.is_cpu:
                return  # reading it from a device would wait for the device
            if not self._backwards or math.isfinite(self._loss):  # one that is not stays
                self._loss = loss.item()
                self._lossless = 0
        except Exception:  # a subclass of tensors may refuse; a training never ends because of it
            return

    def give_loss(self, value: float) -> None:
        """What the program itself knows."""
        self._loss = value
        self._lossless = 0

    def gradients_ready(self, _: Any) -> None:
        """The last gradient of this rank is there; what is left of backward is the exchange."""
        self._ready = _now()

    def backward_ends(self) -> None:
        """Backward is over, the exchange of gradients too."""
        self._depth -= 1
        if self._depth:
            return
        if self.device is not None:
            self.device.mark("backward")
        now = _now()
        took = now - self._backward_began
        if self._ready:
            waited = now - self._ready
            self.collective += waited
            took -= waited
        self.backward += took
        self._at = now

    def optimizer_begins(self) -> None:
        """Clipping, unscaling and the like lie between backward and this."""
        now = _now()
        self._other += now - self._at
        self._at = now
        if self.device is not None:
            self.device.mark("other")

    def optimizer_ends(self, optimizer: int) -> None:
        """With no batches to go by, the step of the first optimizer seen ends a step."""
        now = _now()
        self._optimizer += now - self._at
        self._optimizers += 1
        self._at = now
        if self.device is not None:
            self.device.mark("optimizer")
        if not self.auto:
            return
        self._lead = self._lead or optimizer
        if optimizer != self._lead:
            return
        if self._loader_seen and not self._lead_steps:
            self._lead_steps = 1
            return
        if self.opened:
            self._close(now)
        self._gap = 0
        self._reset(UNKNOWN)
        self._signature = UNKNOWN
        self.opened = True
        if self.device is not None:
            self.device.begin()

    # The end of a step.

    def _close(self, now: int) -> None:
        if self.device is not None:
            self.device.mark("other" if self._backwards else "forward")
            self.device.end()
        if now - self._scheduler_at > SCHEDULER_EVERY_NS and self.scheduler_file >= 0:
            self.scheduler.append((now, os.pread(self.scheduler_file, 64, 0)))
            self._scheduler_at = now
        self.rows.append(
            (
                self.step,
                now,
                self._gap,
                self._data,
                self._forward if self._backwards else now - self._at,
                self.backward,
                self.collective if self.ranks else UNKNOWN,
                self._optimizer,
                self._other + (now - self._at if self._backwards else 0),
                self._backwards,
                self._optimizers,
                self._loss,
                self._lossless,
                self._signature,
                self._training,
                self.profiled,
            )  # type: ignore[arg-type]  # a plain tuple: a named one takes three times as long
        )
        self.step += 1
        self._gap = 0
        self.opened = False
        if self.between is not None:
            self.between()

    def end(self) -> None:
        """Close the step that is open; after the last step of an optimizer nothing has begun."""
        if self.opened and (self._backwards or self._data != UNKNOWN):
            self._close(_now())
        if self.scheduler_file >= 0:
            os.close(self.scheduler_file)
            self.scheduler_file = -1

    @property
    def mine(self) -> bool:
        """Whether the caller is the thread that is watched."""
        return threading.get_ident() == self.thread


def _scheduler_file() -> int:
    """The counters of this thread, kept open; -1 where the system has none."""
    try:
        return os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
    except OSError:
        return -1


def leaves(key: Any) -> tuple[Leaf, ...]:
    """A signature in words."""
    parts = key if isinstance(key, tuple) else ()
    if len(parts) == 3 and not isinstance(parts[1], tuple):  # a shape is a tuple too
        parts = (parts,)
    found = []
    for number, one in enumerate(parts):
        *name, shape, dtype, device = one
        text = str(dtype).removeprefix("torch.")
        found.append((str(name[0]) if name else str(number), tuple(shape), text, str(device)))
    return tuple(found)


MOST_SPANS = 10_000
_ident = threading.get_ident


class Span(NamedTuple):
    """Something that may make a step slow, from and until."""

    kind: str
    """`gc`, `checkpoint` or `compile`."""
    begin: int
    end: int
    detail: str = ""


class Watched:
    """A clock, and what happened beside it in the process."""

    def __init__(self, clock: StepClock, parallel: Callable[[Any], None] | None = None) -> None:
        self.clock = clock
        self.parallel = parallel
        """Told of a `DistributedDataParallel` that the program makes."""
        self.spans: deque[Span] = deque(maxlen=MOST_SPANS)


class Hooks:
    """All marks in this process; there is one (`HOOKS`), because torch has one of each hook."""

    def __init__(self) -> None:
        self._watched: tuple[Watched, ...] = ()
        self._clocks: dict[int, tuple[StepClock, ...]] = {}
        """By thread: these are looked up several times a step."""
        self._undo: list[Callable[[], None]] = []
        self._gc_began = 0
        self._forks_known = False
        self._is_compiling: Callable[[], bool] = bool

    def add(self, watched: Watched) -> None:
        """Begin to mark for this clock too."""
        if not self._undo:
            self._install()
        self._know((*self._watched, watched))

    def _know(self, watched: tuple[Watched, ...]) -> None:
        clocks: dict[int, tuple[StepClock, ...]] = {}
        for one in watched:
            thread = one.clock.thread
            clocks[thread] = (*clocks.get(thread, ()), one.clock)
        self._watched, self._clocks = watched, clocks

    def remove(self, watched: Watched) -> None:
        """The last one takes the hooks away."""
        self._know(tuple(one for one in self._watched if one is not watched))
        if not self._watched:
            self._uninstall()

    def _uninstall(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _forked(self) -> None:
        """A child has no thread that would add up: a worker of a DataLoader marks nothing."""
        self._know(())
        self._uninstall()

    def _install(self) -> None:
        import torch
        from torch.nn.parallel import DistributedDataParallel
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        if not self._forks_known:
            os.register_at_fork(after_in_child=self._forked)
            self._forks_known = True
        self._is_compiling = torch.compiler.is_compiling
        before = optimizer.register_optimizer_step_pre_hook(self._before_step)
        after = optimizer.register_optimizer_step_post_hook(self._after_step)
        gc.callbacks.append(self._collected)
        self._undo += [before.remove, after.remove, lambda: gc.callbacks.remove(self._collected)]
        self._replace(torch.autograd, "backward", self._backward)
        self._replace(torch, "save", self._save)
        self._replace(DistributedDataParallel, "__init__", self._parallel)
        self._replace(dataloader._BaseDataLoaderIter, "__next__", self._next)

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        old = getattr(owner, name)
        new = functools.wraps(old)(make(old))
        setattr(owner, name, new)

        def put_back() -> None:
            if getattr(owner, name) is new:  # else somebody else has put theirs around ours
                setattr(owner, name, old)

        self._undo.append(put_back)

    def _backward(self, old: Any) -> Any:
        def backward(tensors: Any = None, *args: Any, **options: Any) -> Any:
            mine = self._clocks.get(_ident(), ())
            for clock in mine:
                clock.backward_begins(tensors)
            try:
                return old(tensors, *args, **options)
            finally:
                for clock in mine:
                    clock.backward_ends()

        return backward

    def _next(self, old: Any) -> Any:
        def __next__(iterator: Any) -> Any:
            mine = [one for one in self._clocks.get(_ident(), ()) if one.auto]
            for clock in mine:
                clock.fetch_begins()
            batch = old(iterator)
            for clock in mine:
                clock.fetch_ends(batch)
            return batch

        return __next__

    def _save(self, old: Any) -> Any:
        def save(*args: Any, **options: Any) -> Any:
            began = _now()
            try:
                return old(*args, **options)
            finally:
                self._add(Span("checkpoint", began, _now()))

        return save

    def _parallel(self, old: Any) -> Any:
        def __init__(model: Any, *args: Any, **options: Any) -> None:
            old(model, *args, **options)
            me = _ident()
            for one in self._watched:
                if one.parallel is not None and one.clock.thread == me:
                    one.parallel(model)

        return __init__

    def _before_step(self, optimizer: Any, args: Any, options: Any) -> None:
        if self._is_compiling():  # a compiled optimizer: nothing may be traced into its graph
            return
        for clock in self._clocks.get(_ident(), ()):
            clock.optimizer_begins()

    def _after_step(self, optimizer: Any, args: Any, options: Any) -> None:
        if self._is_compiling():
            return
        for clock in self._clocks.get(_ident(), ()):
            clock.optimizer_ends(id(optimizer))

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = _now()
        elif self._gc_began:
            self._add(Span("gc", self._gc_began, _now(), str(info.get("generation", ""))))

    def _add(self, span: Span) -> None:
        for one in self._watched:
            one.spans.append(span)


HOOKS = Hooks()

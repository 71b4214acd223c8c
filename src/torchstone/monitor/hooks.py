"""Where marks are set: the autograd entry, the optimizer's global hooks, the DataLoader's iterator.

No module gets a hook: under `torch.compile` those fire twice, are traced into the graph, or never
run. Everything is put back when the last monitor closes.
"""

from __future__ import annotations

import functools
import gc
import os
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns as _now
from typing import Any, NamedTuple

from torchstone.monitor.clock import StepClock

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
        self._undo: list[Callable[[], None]] = []
        self._gc_began = 0
        self._forks_known = False
        self._is_compiling: Callable[[], bool] = bool

    def add(self, watched: Watched) -> None:
        """Begin to mark for this clock too."""
        if not self._undo:
            self._install()
        self._watched = (*self._watched, watched)

    def remove(self, watched: Watched) -> None:
        """The last one takes the hooks away."""
        self._watched = tuple(one for one in self._watched if one is not watched)
        if not self._watched:
            self._uninstall()

    def _uninstall(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _forked(self) -> None:
        """A child has no thread that would add up: a worker of a DataLoader marks nothing."""
        self._watched = ()
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
            me = _ident()
            mine = [one.clock for one in self._watched if one.clock.thread == me]
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
            me = _ident()
            mine = [one.clock for one in self._watched if one.clock.thread == me and one.clock.auto]
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
        me = _ident()
        for one in self._watched:
            if one.clock.thread == me:
                one.clock.optimizer_begins()

    def _after_step(self, optimizer: Any, args: Any, options: Any) -> None:
        if self._is_compiling():
            return
        me = _ident()
        for one in self._watched:
            if one.clock.thread == me:
                one.clock.optimizer_ends(id(optimizer))

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = _now()
        elif self._gc_began:
            self._add(Span("gc", self._gc_began, _now(), str(info.get("generation", ""))))

    def _add(self, span: Span) -> None:
        for one in self._watched:
            one.spans.append(span)


HOOKS = Hooks()

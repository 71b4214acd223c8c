"""Tracing: every op, kernel, mark and Python function with its time, by torch.profiler."""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

from torchstone.machine.folders import own_folder
from torchstone.profile import trees
from torchstone.profile.formats.base import read_profile
from torchstone.profile.probes.base import ProbeOptions, Step, new_profile
from torchstone.records import Frame, Profile, Spans

STEP = "ProfilerStep"
"""How torch's own profiler names its marks of steps, with a number; viewers know it."""
_UNSTABLE: dict[str, Any] = {"record_python_gc_info": True, "profile_all_threads": True}
_OWN_FILES = ("torchstone/profile/probes/trace.py", "torchstone/profile/child.py")
"""As torch writes them. Their functions are around every step, and none of it."""
_NO_CONFIG = "This torch cannot record garbage collections or threads that it does not know."


class TraceProbe:
    """See the module."""

    name = "torch"
    how = "trace"

    def __init__(self, options: ProbeOptions | None = None) -> None:
        self._options = options or ProbeOptions()
        self.written_bytes = 0

    def unavailable(self) -> str:
        return "" if importlib.util.find_spec("torch") else "tracing needs torch"

    def start(self) -> None:
        from torch.profiler import profile

        config = _config()
        self._notes = () if config is not None else (_NO_CONFIG,)
        self._profiler = profile(
            activities=self._activities(), with_stack=True, experimental_config=config
        )
        self._profiler.start()

    def stop(self) -> Profile:
        """What was recorded; of steps that are marked, from the first mark to the last."""
        self._profiler.stop()
        with own_folder() as folder:
            path = folder / "steps.pt.trace.json"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's advice about its own profiler
                self._profiler.export_chrome_trace(str(path))
            self.written_bytes = path.stat().st_size
            read = _between_marks(read_profile(path, "chrome"))
        blank = new_profile(self.how, "torch.profiler")
        return replace(
            read,
            id=blank.id,
            created=blank.created,
            tool=blank.tool,
            label="",
            origin=blank.origin,
            facts={**read.facts, **blank.facts},
            notes=(*read.notes, *self._notes),
        )

    def discard(self) -> None:
        self._profiler.stop()

    def around(self, step: Step) -> Step:
        """The step between two marks."""
        mark = _marker()
        numbers = itertools.count()

        def marked() -> None:
            now = mark(f"{STEP}#{next(numbers)}")
            # A mark ends within the call that ends it, so that a call which the tracer sees would
            # reach over the mark's end. It sees functions only, not what `partial` makes of them.
            begin, end = partial(now.__enter__), partial(now.__exit__, None, None, None)
            begin()
            try:
                step()
            finally:
                end()

        return marked

    def _activities(self) -> list[Any]:
        from torch.profiler import ProfilerActivity, supported_activities

        kind = self._options.device.split(":")[0].upper()
        wanted = ["CPU"] if kind == "CPU" else ["CPU", kind]
        known = {one.name: one for one in supported_activities()}  # type: ignore[no-untyped-call]
        return [known.get(name, ProfilerActivity.CPU) for name in wanted]


def _marker() -> Any:
    """What marks a stretch. The quicker one of torch leaves no Python calls around the marks,
    which would overlap with them; but it is underscored."""
    try:
        from torch._C._profiler import _RecordFunctionFast

        return _RecordFunctionFast
    except ImportError:
        from torch.autograd.profiler import record_function

        return record_function


def _config() -> Any:
    """Underscored in torch: what there is of it, or None."""
    try:
        from torch._C._profiler import _ExperimentalConfig

        return _ExperimentalConfig(**_UNSTABLE)
    except (ImportError, TypeError, AttributeError):
        return None


def _between_marks(profile: Profile) -> Profile:
    """Without the profiler's own start and end, and without the frames around the steps."""
    spans = profile.spans
    marks = {i for i, frame in enumerate(profile.frames) if frame.name.startswith(STEP)}
    if spans is None or not marks:
        return profile
    frames = tuple(
        Frame(STEP, kind="annotation") if i in marks else frame
        for i, frame in enumerate(profile.frames)
    )
    one = min(marks)
    own = {i for i, frame in enumerate(frames) if frame.file.endswith(_OWN_FILES)}
    rows = list(trees.rows_of(spans))
    first = min(start for frame, _, start, _ in rows if frame in marks)
    last = max(start + duration for frame, _, start, duration in rows if frame in marks)
    kept = [
        (one if frame in marks else frame, thread, start - first, duration)
        for frame, thread, start, duration in rows
        if start >= first and start + duration <= last and frame not in own
    ]
    inside = Spans(*(tuple(column) for column in zip(*kept, strict=True)))
    tree, wall_s = trees.from_spans(inside), (last - first) / 1e9
    return replace(profile, frames=frames, spans=inside, tree=tree, wall_s=wall_s)

"""`torchstone.monitor(...)`: watches a training loop. The loop only sets marks (`clock`); a thread
takes them twice a second, adds them up, looks for problems, and hands chunks on to sinks."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat, starmap
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from torchstone.machine.redact import redact_text
from torchstone.monitor.clock import HOOKS, StepClock, StepRow, Watched, device_times
from torchstone.monitor.collect import Collector
from torchstone.monitor.flops import FlopsCount
from torchstone.monitor.journal import (
    PROFILE_REQUEST,
    Journal,
    MonitorRecord,
    monitors_folder,
    process_started,
    slow_rank,
)
from torchstone.monitor.sinks import Sink, SinkRunner, make_sink
from torchstone.monitor.system import CompileWatch, ProcessWatch
from torchstone.profile.formats.base import write_profile
from torchstone.profile.probes.base import Probe, ProbeOptions, choose_probe
from torchstone.records import UsageError, in_a_line
from torchstone.records.monitoring import (
    Line,
    MonitorEnd,
    MonitorEvent,
    MonitorHeader,
    MonitorLevel,
)

LOOK_S = 0.5
"""Between two looks; a chunk holds two."""
CHUNK_LOOKS = 2
MOST_KEPT = 1000
FIRST_PARAMETERS = 4
"""Gradients of the first layers come last; the latest of these ends a rank's own work."""
RANKS_FIRST_S, RANKS_S = 12.0, 60.0
"""When rank 0 compares all ranks: after 12, 24 and 48 seconds, then every minute, and at the end.
Each look has its part of the rate of false alarms."""
RECORD = "record"
T = TypeVar("T")
_OPENED: Counter[str] = Counter()
END_AND_STEP = itemgetter(StepRow._fields.index("end"), StepRow._fields.index("step"))


def new_id(name: str) -> str:
    """The name, made safe for a folder, and what tells this monitor from others of that name.

    Ranks of one job on one machine get the same: it is made of what their launcher gave to all.
    """
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "training"
    launched = [os.environ.get(word, "") for word in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")]
    if all(launched):
        launched += [
            os.environ.get("TORCHELASTIC_RUN_ID", ""),
            os.environ.get("TORCHELASTIC_RESTART_COUNT", ""),
            str(os.getppid()),
            str(process_started(os.getppid())),
            str(_OPENED[slug]),
        ]
        _OPENED[slug] += 1
        return f"{slug}-{hashlib.sha256(' '.join(launched).encode()).hexdigest()[:10]}"
    return f"{slug}-{int(time.time()):x}{secrets.token_hex(2)}"


def _number(name: str, usual: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else usual


class Monitor:
    """What `torchstone.monitor()` returns. Open it with `with`."""

    def __init__(
        self,
        name: str = "training",
        *,
        model: Any = None,
        optimizer: Any = None,
        scaler: Any = None,
        sinks: Sequence[str | Sink] = (),
        step: int = 0,
        folder: str | Path | None = None,
        auto: bool = False,
        ident: str = "",
        look_s: float = LOOK_S,
        command: str = "",
        flops_per_step: float | None = None,
    ) -> None:
        self.id = ident or new_id(name)
        self.folder = Path(folder) if folder is not None else monitors_folder() / self.id
        self.events: deque[MonitorEvent] = deque(maxlen=MOST_KEPT)
        """What was found, the newest last."""
        self._name = name
        self._model, self._optimizer, self._scaler = model, optimizer, scaler
        self._first_step = step
        self._sinks_given = sinks
        self._auto = auto
        self._look_s = look_s
        self._flops = flops_per_step
        self._command = command or " ".join(sys.argv)
        self._watched: Watched | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._new: list[Line] = []
        self._undo: list[Callable[[], object]] = []
        self._recent: deque[tuple[int, int]] = deque(maxlen=4096)
        """When steps ended, and which: to place what happened beside them."""
        self._ranks: MonitorRecord | None = None
        self._ranks_at = 0.0
        self._ranks_looks = 0
        self._slow_rank: int | None = None

    # In the training's thread.

    def __enter__(self) -> Monitor:
        if self._watched is not None:
            raise UsageError("This monitor is open already.", "Make another one.")
        import torch

        clock = StepClock(torch.Tensor, self._first_step, self._model, self._auto)
        clock.device = device_times(torch)
        self._watched = Watched(clock, self._parallel)
        self._header = self._make_header(torch)
        named = [make_sink(one, self._header) for one in self._sinks_given]
        self._runners = [SinkRunner(RECORD, Journal(self.folder, self._header))]
        self._runners += [SinkRunner(name, sink) for name, sink in named]
        self._collector = Collector(self._say)
        self._flops_count: FlopsCount | None = None
        self._counted_for = 0.0
        if self._flops:
            self._collector.flops = (self._flops, None)
        self._compiles = CompileWatch(self._collector.event)
        self._process = ProcessWatch(_accelerator(torch))
        self._demand = ProfileOnDemand(clock, self.folder, self._header.rank, self._collector.event)
        self._scale = 0.0
        self._look_at_scaler([])
        self._resumed()
        self._watch_ranks(torch, self._model)
        self._watch_signal()
        HOOKS.add(self._watched)
        self._began = self._chunk_at = time.time()
        self._runners[0].put(())
        self._thread = threading.Thread(target=self._run, name="torchstone-monitor", daemon=True)
        self._thread.start()
        return self

    def steps(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches; each is a step, from asking for it until asking for the next."""
        if self._watched is None:
            raise UsageError("This monitor is not open.", "Open it: `with monitor as m:`.")
        clock = self._watched.clock
        clock.auto, auto = False, clock.auto
        iterator = iter(batches)
        try:
            while True:
                clock.fetch_begins()
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
                clock.fetch_ends(batch)
                yield batch
        finally:
            clock.auto = auto

    def note(self, text: str) -> None:
        """Put an event of your own into the record, at this step."""
        step = self._watched.clock.step if self._watched else self._first_step
        self._say(MonitorEvent(time.time(), step, "user", MonitorLevel.NOTE, text[:1000]))

    def loss(self, value: float) -> None:
        """Give this step's loss, where it cannot be seen: on a device, reading it would wait."""
        if self._watched is not None:
            self._watched.clock.give_loss(float(value))

    def profile(self, steps: int = 20, how: str = "trace") -> None:
        """Profile the next steps, and store that beside the record."""
        self._demand.want(steps, how)

    def __exit__(self, kind: type[BaseException] | None, error: Any, _: object) -> None:
        self.close(in_a_line(error) if isinstance(error, BaseException) else "")

    def close(self, reason: str = "") -> None:
        """End watching. What was seen is written; sinks get two seconds to take it."""
        if self._watched is None:
            return
        HOOKS.remove(self._watched)
        while self._undo:
            with contextlib.suppress(Exception):
                self._undo.pop()()
        self._demand.end()
        if self._flops_count is not None:
            self._flops_count.end()
        clock = self._watched.clock
        if clock.mine:
            clock.end()
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(Exception):
            self._look(chunk=True)
            self._look_at_ranks(last=True)
        self._process.close()
        steps = clock.step - self._first_step
        self._hand_on([MonitorEnd(time.time(), steps, reason)])
        for one in self._runners:
            one.close()
        self._watched = None
        self._tell_problems()

    def _tell_problems(self) -> None:
        for one in self._runners:
            if one.problem or one.dropped:
                why = f": {one.problem}" if one.problem else ""
                text = f"torchstone: the monitor's {one.name} lost {one.dropped} lines{why}\n"
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(text)

    # Setting up.

    def _make_header(self, torch: Any) -> MonitorHeader:
        device = _accelerator(torch)
        return MonitorHeader(
            id=self.id,
            name=self._name,
            kind="training",
            rank=_number("RANK", 0),
            world_size=_number("WORLD_SIZE", 1),
            pid=os.getpid(),
            started_s=time.time(),
            process_started=process_started(os.getpid()),
            host=socket.gethostname(),
            device="cpu" if device is None else str(device.__name__).rpartition(".")[2],
            torch=str(torch.__version__),
            command=redact_text(self._command, os.environ)[:500],
            unseen=self._unseen(torch),
            can_profile=True,
            flops_per_step=self._flops or None,
            flops_how="given" if self._flops else "",
            **_precision(torch, self._model),
        )

    def _unseen(self, torch: Any) -> tuple[str, ...]:
        unseen = []
        if self._model is None:
            unseen.append("The model's mode and FLOPs: no model was given.")
        if not _is_ddp(torch, self._model):
            unseen.append("Waiting for other ranks: the model is not DistributedDataParallel.")
        unseen.append("Transfers to a device: they happen inside the step.")
        if _accelerator(torch) is not None:
            unseen.append("The loss on a device: give it with m.loss(value) where you have it.")
        return tuple(unseen)

    def _parallel(self, model: Any) -> None:
        """The program has made this `DistributedDataParallel`: a script's model, found."""
        import torch

        if self._model is not None or self._watched is None:
            return
        self._model = self._watched.clock.model = model
        self._watch_ranks(torch, model)
        self._write_header(unseen=self._unseen(torch), **_precision(torch, model))

    def _write_header(self, **changes: Any) -> None:
        """Again, with what was not known before."""
        self._header = replace(self._header, **changes)
        with self._lock:
            self._new.append(self._header)

    def _resumed(self) -> None:
        """A training that goes on where another ended has an optimizer with a past."""
        state = getattr(self._optimizer, "state", None)
        past = 0
        with contextlib.suppress(Exception):
            past = max((int(one.get("step", 0)) for one in state.values()), default=0)  # type: ignore[union-attr]
        if past or self._first_step:
            text = f"The training goes on: from step {self._first_step:,}"
            text += f", with an optimizer of {past:,} steps." if past else "."
            self._collector.event(self._first_step, "resume", text, cause="resume")
        with contextlib.suppress(Exception):  # a wrapper of an optimizer may have the name alone
            inner = getattr(self._optimizer, "optimizer", self._optimizer)
            self._undo.append(inner.register_load_state_dict_post_hook(self._loaded).remove)

    def _loaded(self, _: Any) -> None:
        step = self._watched.clock.step if self._watched else 0
        text = f"The optimizer's state was loaded at step {step:,}."
        self._collector.event(step, "resume", text, cause="resume")

    def _watch_ranks(self, torch: Any, model: Any) -> None:
        if not _is_ddp(torch, model) or self._watched is None:
            return
        clock = self._watched.clock
        wanted = [one for one in model.parameters() if one.requires_grad][:FIRST_PARAMETERS]
        for one in wanted:
            self._undo.append(one.register_hook(clock.gradients_ready).remove)
        clock.ranks = bool(wanted)

    def _watch_signal(self) -> None:
        """SIGUSR2 asks for a profile, where nobody else uses it."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGUSR2) is not signal.SIG_DFL:
            return
        signal.signal(signal.SIGUSR2, lambda *_: self._demand.want())
        self._undo.append(lambda: signal.signal(signal.SIGUSR2, signal.SIG_DFL))

    # In the monitor's own thread.

    def _run(self) -> None:
        looks = 0
        while not self._stop.wait(self._look_s):
            looks += 1
            try:
                self._look(chunk=looks % CHUNK_LOOKS == 0)
            except Exception as error:  # a defect of ours must not end a training, nor hide
                self._say(
                    MonitorEvent(
                        time.time(),
                        -1,
                        "monitor",
                        MonitorLevel.NOTE,
                        f"Monitor: {in_a_line(error)}",
                    )
                )

    def _look(self, chunk: bool) -> None:
        assert self._watched is not None
        clock = self._watched.clock
        now = time.time()
        rows: list[StepRow] = _drain(clock.rows)
        scheduler = _drain(clock.scheduler)
        self._recent.extend(map(END_AND_STEP, rows))
        spans = [*_drain(self._watched.spans), *self._compiles.look(self._step_at)]
        counters = _last_counters(scheduler)
        process = self._process.look(counters)
        self._collector.add(rows, now, spans, scheduler, clock.signatures, process)
        if clock.device is not None:
            self._collector.add_device(*clock.device.look())
        self._look_at_scaler(rows)
        self._look_at_flops(rows)
        self._demand.look()
        self._look_at_ranks()
        if chunk:
            dropped = {one.name: one.dropped for one in self._runners if one.dropped}
            made = self._collector.chunk(now, now - self._chunk_at, process, dropped)
            if made is not None:
                self._hand_on([made])
                self._chunk_at = now
        self._hand_on([])

    def _look_at_ranks(self, last: bool = False) -> None:
        """Rank 0 reads what the others of this machine have written, now and then."""
        head = self._header
        now = time.monotonic()
        if head.rank or head.world_size < 2 or (now < self._ranks_at and not last):
            return
        self._ranks_looks += 1
        pause = RANKS_FIRST_S * 2.0 ** max(0, self._ranks_looks - 2)
        self._ranks_at = now + min(RANKS_S, pause)
        if self._ranks_looks == 1:
            return
        self._ranks = self._ranks or MonitorRecord(self.folder, [])
        self._ranks.read()
        found = slow_rank(self._ranks, looks=self._ranks_looks - 1)
        if found is not None and found.rank != self._slow_rank:
            figures = {"rank": float(found.rank), "share": found.share}
            step, level = self._collector.last_step, MonitorLevel.WARN
            cause = found.phase or "rank"
            self._collector.event(step, "slow-rank", found.text, level, cause, figures=figures)
        self._slow_rank = found.rank if found else None

    def _look_at_scaler(self, rows: Sequence[StepRow]) -> None:
        """A scaler that found an infinite gradient skips the optimizer and lowers its scale."""
        if self._scaler is None or "cuda" in str(getattr(self._scaler, "_device", "")):
            return  # reading it there would synchronise
        scale = float(self._scaler.get_scale())
        before, self._scale = self._scale, scale
        self._collector.loss_scale = scale
        if scale < before:
            skipped = [int(row[0]) for row in rows if row[9] and not row[10]]
            step = skipped[-1] if skipped else self._collector.last_step
            text = (
                f"The gradient scaler skipped {max(1, len(skipped))} steps, the last at step "
                f"{step:,}; the scale is {scale:g}."
            )
            self._collector.event(step, "scaler", text, cause="overflow")

    def _look_at_flops(self, rows: Sequence[StepRow]) -> None:
        """Counted for the first batch that was trained on, unless they were given."""
        if self._flops_count is not None:
            found = self._flops_count.look()
            if found is not None:
                if found.flops:
                    self._collector.flops = (found.flops, self._counted_for)
                self._write_header(flops_per_step=found.flops or None, flops_how=found.how)
            return
        if self._flops is not None or self._model is None:
            return
        if self._header.world_size > 1 and not self._watched_ranks:
            return  # the model itself may talk to other ranks, which a child must not
        seen = next((int(row[13]) for row in rows if row[9] and row[13] >= 0), None)
        size = None if seen is None else self._collector.contract.size_of(seen)
        if seen is not None and size is not None:
            self._counted_for = size.log_elements
            self._flops_count = FlopsCount()
            self._flops_count.begin(self._model, self._collector.contract.leaves_of(seen))

    @property
    def _watched_ranks(self) -> bool:
        return self._watched is not None and self._watched.clock.ranks

    def _step_at(self, moment: int) -> int:
        """The step that was running then."""
        ends = [end for end, _ in self._recent]
        place = bisect_left(ends, moment)
        if place < len(self._recent):
            return self._recent[place][1]
        return self._watched.clock.step if self._watched else 0

    def _say(self, event: MonitorEvent) -> None:
        self.events.append(event)
        with self._lock:
            self._new.append(event)

    def _hand_on(self, lines: list[Line]) -> None:
        with self._lock:
            lines = [*self._new, *lines]
            self._new = []
        if lines:
            for one in self._runners:
                one.put(lines)


def _drain(waiting: deque[Any]) -> list[Any]:
    """Take what is there now; the training's thread may add more meanwhile."""
    return list(starmap(waiting.popleft, repeat((), len(waiting))))


def _last_counters(readings: Sequence[tuple[int, bytes]]) -> tuple[int, int] | None:
    words = readings[-1][1].split() if readings else []
    return (int(words[0]), int(words[1])) if len(words) == 3 else None


def _is_ddp(torch: Any, model: Any) -> bool:
    return isinstance(model, torch.nn.parallel.DistributedDataParallel)


def _precision(torch: Any, model: Any) -> dict[str, Any]:
    """What tells the peak that the model is held against."""
    first = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
    dtype = "" if first is None else str(first.dtype).removeprefix("torch.")
    return {"dtype": dtype, "threads": torch.get_num_threads()}


def _accelerator(torch: Any) -> Any:
    """The module of the accelerator in use (`torch.cuda`, …); None on a CPU."""
    with contextlib.suppress(Exception):
        kind = torch.accelerator.current_accelerator()
        if kind is not None and torch.accelerator.is_available():
            return getattr(torch, kind.type)
    return None


def monitor(
    name: str = "training",
    *,
    model: Any = None,
    optimizer: Any = None,
    scaler: Any = None,
    sinks: Sequence[str | Sink] = (),
    step: int = 0,
    folder: str | Path | None = None,
    flops_per_step: float | None = None,
) -> Monitor:
    """Watch a training loop: `with torchstone.monitor("my-training", model=model) as m:` and inside
    it `for batch in m.steps(loader):`.

    `model` is watched for its mode and, under DistributedDataParallel, for slow ranks; `optimizer`
    for being resumed; `scaler` for steps that it skips. `sinks` are where chunks go besides the
    record: `prometheus:9400`, `tensorboard:runs`, `otel`, `jsonl:FILE`, or an object of your own.
    `step` is the number of the first step. The record is in `folder`. FLOPs are counted once, in a
    process of their own, unless `flops_per_step` gives them; 0: do not count.
    """
    return Monitor(
        name,
        model=model,
        optimizer=optimizer,
        scaler=scaler,
        sinks=sinks,
        step=step,
        folder=folder,
        flops_per_step=flops_per_step,
    )


# A profile of the next steps of a running training, on demand: by a file that `torchstone top`
# writes, by SIGUSR2, or by a call. It begins and ends between two steps, in the training's thread.

USUAL_STEPS = 20
MOST_STEPS = 10_000
WAYS = ("trace", "sample", "count", "memory")
FORMAT = "torchstone"


class ProfileOnDemand:
    """Off until somebody wants it; then `clock.between` is called after each step."""

    def __init__(self, clock: StepClock, folder: Path, rank: int, say: Callable[..., None]) -> None:
        self._clock = clock
        self._folder = folder
        self._rank = rank
        self._say = say
        self._probe: Probe | None = None
        self._wanted = self._left = 0
        self._how = WAYS[0]
        self._first = 0
        self._answered = ""

    def want(self, steps: int = USUAL_STEPS, how: str = WAYS[0]) -> None:
        """From the next step on; while one is taken, another is not begun."""
        if self._wanted or self._probe is not None:
            return
        self._how = how if how in WAYS else WAYS[0]
        self._wanted = min(MOST_STEPS, max(1, steps))
        self._clock.between = self._between

    def look(self) -> None:
        """Whether a file asks for one; each request is answered once."""
        path = self._folder / PROFILE_REQUEST
        try:
            text = path.read_text("utf-8")[:1000]
        except (OSError, UnicodeDecodeError):
            return
        with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
            asked: dict[str, Any] = json.loads(text)
            if str(asked["id"]) != self._answered:
                self._answered = str(asked["id"])
                self.want(int(asked.get("steps", USUAL_STEPS)), str(asked.get("how", WAYS[0])))

    def _between(self) -> None:
        try:
            if self._wanted:
                self._begin()
            elif self._probe is not None:
                self._left -= 1
                if self._left <= 0:
                    self.end()
        except Exception as error:
            self._probe = None
            self._clock.between = None
            self._clock.profiled = 0
            text = f"The profile failed: {in_a_line(error)}"
            self._say(self._clock.step, "profile", text, cause="profile")

    def _begin(self) -> None:
        self._left, self._wanted = self._wanted, 0
        self._first = self._clock.step
        probe = choose_probe(self._how, ProbeOptions())
        probe.start()
        self._probe = probe
        self._clock.profiled = 1

    def end(self) -> None:
        """Write what was seen, which may be less than was wanted."""
        self._clock.between = None
        probe, self._probe = self._probe, None
        if probe is None:
            return
        self._clock.profiled = 0
        last = self._clock.step - 1
        label = f"steps {self._first} to {last}, rank {self._rank}"
        profile = replace(probe.stop(), label=label, steps=max(0, last - self._first + 1))
        path = self._folder / f"profile-rank{self._rank}-step{self._first}.profile.json"
        self._folder.mkdir(parents=True, exist_ok=True)
        write_profile(profile, path, FORMAT)
        text = f"Steps {self._first:,} to {last:,} were profiled ({self._how}): {path.name}."
        self._say(self._first, "profile", text, MonitorLevel.NOTE, cause="profile")

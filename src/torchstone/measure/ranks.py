"""One rank of an arm, under torchrun or alone: builds its part, steps when it is asked to.

Every rank has a connection of its own to the conductor, so that the conductor sees which one dies,
fails or stays silent. At the start, after the backward pass and at the end of each step a rank
counts in a file that the conductor can read when nothing else answers; SIGUSR1 writes its stack.
"""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torchstone.machine.processes import die_with_parent
from torchstone.measure.channel import ChannelClosed, receive, send
from torchstone.measure.worker import failure_of
from torchstone.records import ArmSpec, NotSupported, UsageError, from_data, to_data
from torchstone.records.scaling import PLAIN, Collective
from torchstone.variants.step import default_loss
from torchstone.variants.techniques.base import plain_sgd
from torchstone.workloads import Inputs, Workload, draw, load_workload, map_nest, walk

COMMUNICATION = ("gloo:", "nccl:")
LAST_CONNECTION_S = 5.0
SAME_LOSS = 1e-3
"""Relative; a sum taken for a mean is off by the number of ranks."""


class Rank:
    """Builds once, then answers."""

    def __init__(self, connection: int, counter: mmap.mmap) -> None:
        self.connection, self.counter = connection, counter
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.steps = 0
        self.where = "start"
        self.step: Callable[[], Any] = lambda: None
        self.model: Any = None
        self.ddp: Any = None

    def count(self) -> None:
        """How far this rank has come, for whoever finds it silent."""
        self.steps += 1
        self.counter[:8] = self.steps.to_bytes(8, "little")

    def serve(self) -> None:
        """The loop."""
        handlers: dict[str, Callable[..., Any]] = {
            "build": self.build,
            "turn": self.turn,
            "trace": self.trace,
        }
        while True:
            command = receive(self.connection)
            name = command.pop("do")
            if name == "stop":
                return
            self.where = name
            try:
                reply = {"reply": to_data(handlers[name](**command))}
            except Exception as error:
                send(self.connection, {"failed": to_data(failure_of(error, self.where))})
                return
            send(self.connection, reply)

    def build(self, arm: Any, kind: str, weak: bool, timeout_s: float) -> dict[str, Any]:
        """Join the group, compute the one-rank gradients, divide the model, compare."""
        import torch
        import torch.distributed as dist

        spec = from_data(ArmSpec, arm)
        torch.set_num_threads(spec.threads or 1)
        if kind != PLAIN:
            backend = "nccl" if spec.device.startswith("cuda") else "gloo"
            dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
        workload = load_workload(spec, lambda phase: None)
        if not isinstance(workload.call, torch.nn.Module):
            raise UsageError(
                f"{spec.target} has no module to train over ranks.",
                "Let the factory return (module, inputs).",
            )
        workload.call.train()
        whole = global_batch(workload, spec.seed, self.world if weak else 1)
        if kind not in (PLAIN, "tp"):
            check_loss(spec.target, workload, whole, self.world)
        double, single = (one_rank_gradients(workload, whole, dtype) for dtype in ("double", ""))
        self.divide(kind, workload, whole)
        self.step()
        report = compare(double, single, self.gradients())
        if batch_dependent(workload.call) and self.world > 1:
            report = {"error": None, "note": BATCH_DEPENDENT}
        return {**report, "threads": torch.get_num_threads(), "torch": torch.__version__}

    def divide(self, kind: str, workload: Workload, whole: Inputs) -> None:
        """Set `step` and `model` by the kind of parallelism."""
        import torch
        from torch.distributed.fsdp import fully_shard

        from torchstone.variants.techniques.parallel import tensor_parallel

        model: Any = workload.call
        loss_of = workload.loss or default_loss
        if kind == "pp":
            self.model, run = pipeline(model, whole, loss_of, self.rank, self.world)
        else:
            inputs = whole
            if kind == "ddp":
                self.ddp = torch.nn.parallel.DistributedDataParallel(model)
                self.ddp._set_ddp_runtime_logging_sample_rate(1)
            elif kind.startswith("fsdp"):
                fully_shard(model)
                if kind == "fsdp-sum":
                    model.set_force_sum_reduction_for_comms(True)
            elif kind == "tp":
                tensor_parallel(model)
            if kind == "ddp" or kind.startswith("fsdp"):
                inputs = part_of(whole, self.rank, self.world)
            self.model, call = model, self.ddp or model

            def run() -> None:
                loss_of(call(*inputs.args, **inputs.kwargs)).backward()

        weights = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = (workload.optimizer or plain_sgd)(weights)

        def step() -> None:
            self.count()
            optimizer.zero_grad(set_to_none=True)
            run()
            self.count()
            optimizer.step()
            self.count()

        self.step = step

    def gradients(self) -> dict[str, Any]:
        """Those that this rank has, put together where they are divided."""
        return {
            name: (p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad).clone()
            for name, p in self.model.named_parameters()
            if p.grad is not None
        }

    def turn(self, steps: int) -> list[int]:
        """Nanoseconds of each step; all ranks start together."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.barrier()
        found = []
        for _ in range(steps):
            began = time.perf_counter_ns()
            self.step()
            found.append(time.perf_counter_ns() - began)
        return found

    def trace(self, steps: int) -> dict[str, Any]:
        """Every communication call, and the stretches in which this rank computed."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as taken:
            times = self.turn(steps)
        calls, computing = [], []
        for event in taken.profiler.kineto_results.events():
            start, end = event.start_ns(), event.start_ns() + event.duration_ns()
            if event.name().endswith(":barrier"):
                continue  # ours, before the first step
            if event.name().startswith(COMMUNICATION):
                calls.append(Collective(event.name(), start, end, message_bytes(event)))
            elif event.name().startswith("aten::"):
                computing.append([start, end])
        found = {"calls": to_data(calls), "computing": union(computing), "steps": times}
        if self.ddp is not None:
            data = self.ddp._get_ddp_logging_data()
            names = ("avg_backward_comm_time", "avg_backward_compute_comm_overlap_time")
            found["ddp"] = [int(data.get(name, 0)) for name in names]
        return found


def union(spans: list[list[int]]) -> list[list[int]]:
    """Spans merged where they touch; adding overlapping ones would count time twice."""
    merged: list[list[int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


_SIZES = {"double": 8, "long": 8, "long int": 8, "c10::BFloat16": 2, "c10::Half": 2}


def message_bytes(event: Any) -> int:
    """Of a call's tensors, by the shapes that the profiler has kept."""
    total = 0
    for shape, dtype in zip(event.shapes(), event.dtypes(), strict=False):
        if shape:
            count = _SIZES.get(dtype, 4)
            for size in shape:
                count *= size
            total += count
    return total


def global_batch(workload: Workload, seed: int, times: int) -> Inputs:
    """The workload's batch, or several of them, one after the other."""
    import torch

    drawn = [draw(workload, seed + number) for number in range(times)]
    if times == 1:
        return drawn[0]
    leaves = [[leaf for _, leaf in walk((one.args, one.kwargs), "")] for one in drawn]
    joined = iter([torch.cat(list(several)) for several in zip(*leaves, strict=True)])
    first = drawn[0]
    args = map_nest(first.args, lambda leaf: next(joined))
    return Inputs(args, map_nest(dict(first.kwargs), lambda leaf: next(joined)))


def part_of(whole: Inputs, rank: int, world: int) -> Inputs:
    """A rank's share of the batch."""

    def cut(leaf: Any) -> Any:
        if leaf.shape[0] % world:
            raise NotSupported(
                f"a batch of {leaf.shape[0]} cannot be divided by {world} ranks; give another one"
            )
        return leaf.chunk(world)[rank]

    return Inputs(map_nest(whole.args, cut), map_nest(dict(whole.kwargs), cut))


BATCH_DEPENDENT = (
    "gradients are not compared: its dropout or batch norm depends on how a batch is divided"
)


def batch_dependent(model: Any) -> bool:
    """Whether a part's output is another one than the part of the output."""
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.modules.dropout import _DropoutNd

    return any(
        isinstance(one, _BatchNorm) or (isinstance(one, _DropoutNd) and one.p > 0)
        for one in model.modules()
    )


def check_loss(target: str, workload: Workload, whole: Inputs, world: int) -> None:
    """Refuse a loss that the ranks cannot compute from their parts of the batch."""
    import torch

    model: Any = copy.deepcopy(workload.call)
    model.eval()
    loss_of = workload.loss or default_loss

    def loss(inputs: Inputs) -> float:
        with torch.no_grad():
            output = model(*inputs.args, **inputs.kwargs)
        return float(loss_of(map_nest(output, lambda leaf: leaf.requires_grad_())))

    everything = loss(whole)
    parts = [part_of(whole, rank, world) for rank in range(world)]
    try:
        mean = sum(map(loss, parts)) / world
    except Exception as error:
        raise UsageError(
            f"The loss of {target} cannot be computed for a part of the batch "
            f"({type(error).__name__}: {error}).",
            "Make its labels an input of the module, and let the module return the loss.",
        ) from error
    if not abs(mean - everything) <= SAME_LOSS * max(abs(everything), abs(mean)):
        raise UsageError(
            f"The loss of {target} is {everything:.4g} over the batch and {mean:.4g} as the mean "
            f"of {world} parts of it, so ranks would train on another loss.",
            "Use a mean over the batch; make labels an input of the module.",
        )


def one_rank_gradients(workload: Workload, whole: Inputs, dtype: str) -> dict[str, Any]:
    """Plain eager code on the global batch, on a copy."""
    model: Any = copy.deepcopy(workload.call)

    def cast(leaf: Any) -> Any:
        return leaf.double() if dtype and leaf.is_floating_point() else leaf

    if dtype:
        model = model.double()
    output = model(*map_nest(whole.args, cast), **map_nest(dict(whole.kwargs), cast))
    (workload.loss or default_loss)(output).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def compare(double: Any, single: Any, found: Any) -> dict[str, Any]:
    """This rank's gradients, and the plain ones in their precision, against float64."""
    names = [name for name in found if name in double]
    if not names:
        return {"error": None}
    norm = sum(float(double[n].square().sum()) for n in names) or 1e-300

    def off(given: Any, name: str) -> float:
        return float((given[name].double() - double[name]).square().sum())

    errors = {name: off(found, name) for name in names}
    dot = sum(float((found[n].double() * double[n]).sum()) for n in names)
    return {
        "error": (sum(errors.values()) / norm) ** 0.5,
        "own": (sum(off(single, name) for name in names) / norm) ** 0.5,
        "scale": dot / norm,
        "parameter": max(errors, key=lambda name: errors[name]),
    }


def pipeline(
    model: Any, whole: Inputs, loss_of: Callable[[Any], Any], rank: int, world: int
) -> tuple[Any, Callable[[], None]]:
    """A Sequential cut into as many stages as ranks, at equal shares of its weights."""
    import torch
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    if not isinstance(model, torch.nn.Sequential) or len(model) < world:
        raise NotSupported(f"a pipeline of {world} stages needs a Sequential of as many parts")
    if len(whole.args) != 1 or whole.kwargs:
        raise NotSupported("a pipeline needs one positional input")
    (batch,) = whole.args
    if batch.shape[0] % world:
        raise NotSupported(f"a batch of {batch.shape[0]} cannot be cut into {world} micro-batches")
    sizes = [sum(p.numel() for p in part.parameters()) for part in model]
    stage_of: list[int] = []
    before = 0
    for place, size in enumerate(sizes):  # no stage is left empty
        share = int(world * (before + size / 2) / max(1, sum(sizes)))
        least = max(stage_of[-1] if stage_of else 0, world - (len(sizes) - place))
        most = stage_of[-1] + 1 if stage_of else 0
        stage_of.append(min(max(share, least), most, world - 1))
        before += size
    own = torch.nn.Sequential()
    for (name, part), stage in zip(model.named_children(), stage_of, strict=True):
        if stage == rank:
            own.add_module(name, part)
    made = PipelineStage(own, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(made, world, loss_fn=lambda output, _: loss_of(output))
    targets = torch.zeros(batch.shape[0])

    def run() -> None:
        first, last = rank == 0, rank == world - 1
        schedule.step(*([batch] if first else []), target=targets if last else None)

    return own, run


def main() -> None:
    """Connect, and serve until told to stop or cut off."""
    folder = sys.argv[1]
    rank = os.environ.get("RANK", "0")
    die_with_parent()
    with contextlib.suppress(Exception):
        faulthandler.enable()
    stack = open(f"{folder}/stack-{rank}", "w")  # noqa: SIM115 - for a signal at any time
    faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
    with open(f"{folder}/steps-{rank}", "w+b") as file:
        file.truncate(8)
        counter = mmap.mmap(file.fileno(), 8)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(LAST_CONNECTION_S)
    connection.connect(f"{folder}/ranks")
    connection.settimeout(None)
    send(connection.fileno(), {"rank": int(rank), "pid": os.getpid()})
    with contextlib.suppress(ChannelClosed):
        Rank(connection.fileno(), counter).serve()
    sys.stderr.flush()
    os._exit(0)  # neither threads of user code nor a broken group may keep us


if __name__ == "__main__":
    main()

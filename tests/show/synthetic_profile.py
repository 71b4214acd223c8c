"""Profiles made by hand, with figures that tests know."""

from __future__ import annotations

import random
from dataclasses import replace

from torchstone.records import (
    Bytecode,
    Calls,
    CallTree,
    Cost,
    Counter,
    Estimate,
    Frame,
    FunctionCalls,
    Instruction,
    LineTable,
    LiveTensor,
    MemoryUse,
    Profile,
    Sampling,
    Spans,
    Thread,
)

MIB = 2**20
HOSTILE_NAME = "<script>alert(1)</script>"
HOSTILE_NAMES = (
    HOSTILE_NAME,
    "<!--<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "</title></style></noscript><b>x",
    "two\nlines\x1b[31m\u202egnp\x00",
    "\ud800 lone",
    "@@data@@",
    "long" * 2000,
)
SITE = "/usr/lib/python3.11/site-packages"
FRAMES = (
    Frame("<module>", "/home/ada/train.py", 1),
    Frame("train", "/home/ada/train.py", 18),
    Frame("forward", f"{SITE}/torch/nn/modules/linear.py", 110),
    Frame("aten::addmm", kind="op"),
    Frame("gemm_kernel", kind="kernel"),
    Frame("backward", f"{SITE}/torch/autograd/__init__.py", 245),
    Frame("load_batch", "/home/ada/loader.py", 7),
    Frame("decode", "/home/ada/loader.py", 31),
    Frame("wait", kind="wait"),
)
SOURCE = (
    "import torch",
    "",
    "",
    "def train(model, batches, optimizer):",
    "    for x, y in batches:",
    "        optimizer.zero_grad()",
    "        loss = torch.nn.functional.cross_entropy(model(x), y)",
    "        loss.backward()",
    "        optimizer.step()",
    "    return loss.item()",
)


def estimate(ratio: float, half: float) -> Estimate:
    return Estimate("floor", ratio, (ratio - half, ratio + half), 0.95, 5)


def tree(unit: str = "seconds", scale: float = 1.0, forward: float = 1.0) -> CallTree:
    """Two threads: 8 on the first (forward 4 of it, 3 of that in a kernel), 2 on the second."""
    parents = (-1, 0, 1, 2, 3, 1, -1, 6, 6)
    frames = (0, 1, 2, 3, 4, 5, 6, 7, 8)
    own = (0.5, 0.5, 0.5 * forward, 0.5 * forward, 3.0 * forward, 3.0, 0.25, 0.75, 1.0)
    calls = (1, 1, 100, 100, 100, 100, 50, 50, 50)
    return CallTree(
        unit,
        parents,
        frames,
        tuple(value * scale for value in own),
        (0, 0, 0, 0, 0, 0, 1, 1, 1),
        calls,
    )


THREADS = (Thread("MainThread", 11, 1, critical=True), Thread("loader", 12, 1))


def training(label: str = "eager", forward: float = 1.0) -> Profile:
    """A small tree with known figures; `forward` times as long in the forward pass."""
    return Profile(
        id=f"p-{label}",
        created="2026-11-15T09:00:00Z",
        how="trace",
        tool="torch.profiler",
        frames=FRAMES,
        threads=THREADS,
        tree=tree(forward=forward),
        wall_s=8.0,
        label=label,
    )


def sampled() -> Profile:
    return replace(
        training("sampled"),
        how="sample",
        tool="py-spy",
        tree=replace(tree("samples", 100.0), calls=()),
        sampling=Sampling(1000, 0.01, "wall", 3),
    )


def counted() -> Profile:
    """Exact figures as cProfile has them, a recursion among them; call paths are guessed."""
    one = Calls(0, 1, 1, 0.5, 8.0)
    two = Calls(1, 1, 1, 0.5, 7.5)
    functions = (
        FunctionCalls(one),
        FunctionCalls(two, (replace(two, frame=0),)),
        FunctionCalls(Calls(2, 140, 100, 4.0, 4.0), (Calls(1, 100, 100, 3.5, 4.0),)),
        FunctionCalls(Calls(5, 100, 100, 3.0, 3.0), (Calls(1, 100, 100, 3.0, 3.0),)),
    )
    guessed = CallTree("seconds", (-1, 0, 1, 1), (0, 1, 2, 5), (0.5, 0.5, 4.0, 3.0), (0, 0, 0, 0))
    return Profile(
        id="p-counted",
        created="2026-11-15T09:00:00Z",
        how="count",
        tool="cProfile",
        frames=FRAMES,
        tree=guessed,
        functions=functions,
        estimated=True,
        wall_s=8.0,
        label="counted",
    )


def spans(count: int = 400, seed: int = 0) -> Spans:
    """Steps of a training loop on two threads, nested; at least `count` spans."""
    chance = random.Random(seed)
    columns: list[tuple[int, int, int, int]] = []
    start = 0
    while len(columns) < count * 3 // 4:
        ops = [chance.randint(4_000, 60_000) for _ in range(12)]
        gap = 2_000
        forward = sum(ops[:6]) + gap * 7
        backward = sum(ops[6:]) + gap * 7
        columns.append((1, 0, start, forward + backward + 3 * gap))
        for frame, begin, length, chosen in (
            (2, start + gap, forward, ops[:6]),
            (5, start + 2 * gap + forward, backward, ops[6:]),
        ):
            columns.append((frame, 0, begin, length))
            at = begin + gap
            for op in chosen:
                columns.append((3, 0, at, op))
                columns.append((4, 0, at + op // 8, op // 2))
                at += op + gap
        start += forward + backward + 5 * gap
    main_end, at = start, 0
    lanes = max(1, (count - len(columns)) // 2)
    for _ in range(lanes):
        length = main_end // lanes
        columns.append((6, 1, at, length - 1))
        columns.append((7, 1, at + length // 10, length // 2))
        at += length
    frames, threads, starts, durations = zip(*columns, strict=True)
    return Spans(frames, threads, starts, durations)


def timed(count: int = 400) -> Profile:
    return replace(training("timed"), tree=None, spans=spans(count), wall_s=0.0)


def lines() -> LineTable:
    return LineTable(
        "/home/ada/train.py",
        (5, 6, 7, 8, 9),
        (101, 100, 100, 100, 100),
        (0.2, 0.3, 4.0, 3.0, 0.5),
        (300 * MIB, 300 * MIB, 420 * MIB, 512 * MIB, 512 * MIB),
        (0, 0, 120 * MIB, 92 * MIB, 0),
        SOURCE,
    )


def bytecode() -> Bytecode:
    steps = (
        Instruction(0, 5, "GET_ITER"),
        Instruction(2, 5, "FOR_ITER", "to 60", "FOR_ITER_LIST", jump_target=True),
        Instruction(6, 6, "LOAD_ATTR", "zero_grad", "LOAD_ATTR_METHOD_WITH_VALUES"),
        Instruction(16, 7, "LOAD_GLOBAL", "torch", "LOAD_GLOBAL_MODULE"),
        Instruction(26, 7, "CALL", "1"),
        Instruction(40, 8, "LOAD_ATTR", "backward"),
        Instruction(60, 10, "RETURN_VALUE", jump_target=True),
    )
    return Bytecode(1, steps)


def memory() -> MemoryUse:
    chance = random.Random(1)
    time, resident, heap = [], [], []
    for step in range(600):
        swing = abs((step % 60) - 30)
        time.append(step * 10_000_000)
        heap.append(200 * MIB + (30 - swing) * 10 * MIB + chance.randint(0, 4) * MIB)
        resident.append(heap[-1] + 120 * MIB + min(step, 200) * MIB // 4)
    peak = max(range(600), key=lambda i: heap[i])
    alive = (
        LiveTensor("float32[1024, 1024]", 48, 192 * MIB, (0, 1, 2)),
        LiveTensor("float32[1024]", 96, 3 * MIB, (0, 1, 5)),
        LiveTensor("int64[64, 512]", 2, MIB // 2, (6, 7)),
    )
    return MemoryUse(
        tuple(time),
        tuple(resident),
        tuple(heap),
        heap[peak],
        time[peak],
        tree("bytes", 60.0 * MIB),
        alive,
        "memray",
    )


def full() -> Profile:
    """A profile with every part."""
    return replace(
        training("full"),
        spans=spans(4000),
        lines=(lines(),),
        bytecode=(bytecode(),),
        memory=memory(),
        counters=(
            Counter("page faults", 1234),
            Counter("instructions", None, note="no hardware counters on this machine"),
            Counter("read", 12 * MIB, "bytes"),
        ),
        cost=Cost(estimate(1.23, 0.04), estimate(1.0, 0.02), 8.0, 9.84, 31 * MIB, 12 * MIB),
        steps=100,
        problems=("3 of 4,000 events have a time stamp of zero",),
        command=("torchstone", "profile", "train.py"),
        facts={"python": "3.11.7", "torch": "2.13.0", "GIL": "yes"},
        notes=("threads of the pool are named by number",),
        machine_id="m-0123",
        version="0.1.0",
    )


def hostile() -> Profile:
    """Every text is an attack."""
    frames = tuple(Frame(name, name, 3, "python") for name in HOSTILE_NAMES)
    count = len(frames)
    stack = CallTree(
        "seconds", tuple(range(-1, count - 1)), tuple(range(count)), (1.0,) * count, (0,) * count
    )
    text = HOSTILE_NAMES[2]
    return Profile(
        id=text,
        created=text,
        how="trace",
        tool=text,
        frames=frames,
        threads=(Thread(text), Thread(text)),
        tree=stack,
        spans=Spans((0, 1), (0, 1), (0, 0), (100, 200)),
        lines=(LineTable(text, (1,), (1,), (1.0,), (), (), (text, "\tx")),),
        bytecode=(Bytecode(0, (Instruction(0, 1, text, text, text),)),),
        memory=MemoryUse(
            (0, 1), (5, 6), (1, 2), 6, 1, stack, (LiveTensor(text, 1, 9, (0,)),), text
        ),
        counters=(Counter(text, 1.0, text, text), Counter(text, None, text, text)),
        problems=(text,),
        command=(text,),
        label=text,
        origin=text,
        facts={text: text},
        notes=(text,),
    )


def grown(nodes: int, seed: int = 0) -> Profile:
    """A random tree of so many nodes, such as a large program's."""
    chance = random.Random(seed)
    names = [f"{verb}_{noun}" for verb in ("load", "apply", "make", "check") for noun in range(400)]
    packages = ("torch", "numpy", "transformers", "app", "json", "requests")
    frames = tuple(
        Frame(name, f"{SITE}/{chance.choice(packages)}/part{i % 37}.py", chance.randint(1, 900))
        for i, name in enumerate(names)
    )
    parents, depth = [-1], [0]
    while len(parents) < nodes:
        # Prefer young nodes, so that paths are as deep as real ones.
        parent = len(parents) - 1 - min(len(parents) - 1, int(chance.expovariate(1 / 60)))
        if chance.random() < 0.2:
            parent = chance.randrange(len(parents))
        if depth[parent] > 60:
            continue
        parents.append(parent)
        depth.append(depth[parent] + 1)
    own = tuple(chance.paretovariate(1.1) * 1e-5 for _ in parents)
    chosen = tuple(chance.randrange(len(frames)) for _ in parents)
    return Profile(
        id="p-grown",
        created="2026-11-15T09:00:00Z",
        how="count",
        tool="cProfile",
        frames=frames,
        tree=CallTree("seconds", tuple(parents), chosen, own, (0,) * nodes, (1,) * nodes),
        label=f"{nodes} nodes",
    )

"""A nightly on many nodes, by simulation: what it takes, and what holds it up.

    python benchmarks/scale_sim.py --db torchstone.db --run last --cases 2000
    python benchmarks/scale_sim.py --seconds 45 --cases 2000 --nodes 12,100,1000
    python benchmarks/scale_sim.py --db torchstone.db --run last --check

Events are those of `--engine ray`: the driver hands out one group at a time (`--hand-out`), the
longest first; a node measures it; the store takes one writer at a time (`--write`); a node that
dies loses its group, which is given out again up to three times. `--check` simulates a stored run
of `--engine ray` from its own groups, and sets what it took beside that.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

TRIES = 3
SPREAD = 0.6
"""Of the logarithm of a group's seconds, where only their median is given."""


@dataclass(frozen=True)
class Night:
    """How it went. Shares are of the whole night: the driver's and the store's own work, and the
    nodes' measuring."""

    seconds: float
    done: int
    lost: int
    """Groups that were given out `TRIES` times in vain, or for which no node was left."""
    retried: int
    nodes_left: int
    driver_share: float
    store_share: float
    node_share: float
    worst_wait_s: float
    """Of a node, for the store."""


def simulate(
    durations: Sequence[float],
    nodes: int,
    write_s: float = 0.03,
    hand_out_s: float = 0.005,
    deaths_per_hour: float = 0.0,
    seed: int = 0,
) -> Night:
    """One night. `deaths_per_hour` is that of one node; a dead node does not come back."""
    chance = random.Random(seed)
    queue = [(-seconds, at, 1) for at, seconds in enumerate(durations)]
    heapq.heapify(queue)
    rate = deaths_per_hour / 3600
    life = [chance.expovariate(rate) if rate else math.inf for _ in range(nodes)]
    idle = [(0.0, node) for node in range(nodes)]
    ready: list[tuple[float, int, float, int, int]] = []  # end of measuring, node, group
    driver = store = busy = end = worst = 0.0
    done = retried = lost = dead = 0
    while queue or ready:
        # The next event: a node that is idle takes a group, or one has measured its own.
        if queue and idle and (not ready or idle[0][0] <= ready[0][0]):
            since, node = heapq.heappop(idle)
            seconds, at, tries = heapq.heappop(queue)
            driver = max(driver, since) + hand_out_s
            heapq.heappush(ready, (driver - seconds, node, -seconds, at, tries))
            continue
        if not ready:
            break  # no node is left
        when, node, seconds, at, tries = heapq.heappop(ready)
        if when >= life[node]:
            dead += 1
            end = max(end, life[node])
            if tries < TRIES:
                retried += 1
                heapq.heappush(queue, (-seconds, at, tries + 1))
            else:
                lost += 1
            continue
        store = max(store, when) + write_s
        worst = max(worst, store - when - write_s)
        busy += seconds
        done += 1
        end = max(end, store)
        heapq.heappush(idle, (store, node))
    lost += len(queue)
    length = max(end, 1e-9)
    return Night(
        seconds=end,
        done=done,
        lost=lost,
        retried=retried,
        nodes_left=nodes - dead,
        driver_share=(done + retried) * hand_out_s / length,
        store_share=done * write_s / length,
        node_share=busy / (nodes * length),
        worst_wait_s=worst,
    )


@dataclass(frozen=True)
class Measured:
    """One group of a stored run: where, when it ended, and what it took, in seconds."""

    node: str
    end: float
    seconds: float


@dataclass(frozen=True)
class Check:
    """A stored run beside its simulation."""

    nodes: int
    groups: int
    between_s: float
    """Median time of a node between two groups: stored, handed out, libraries loaded."""
    took_s: float
    simulated_s: float


def check(groups: Sequence[Measured], write_s: float = 0.0, hand_out_s: float = 0.0) -> Check:
    """From the first group's start to the last one's end."""
    by_node: dict[str, list[Measured]] = {}
    for one in sorted(groups, key=lambda one: one.end):
        by_node.setdefault(one.node, []).append(one)
    between = [
        max(0.0, later.end - later.seconds - earlier.end)
        for own in by_node.values()
        for earlier, later in pairwise(own)
    ]
    gap = statistics.median(between) if between else 0.0
    took = max(one.end for one in groups) - min(one.end - one.seconds for one in groups)
    each = [one.seconds + gap for one in groups]
    night = simulate(each, len(by_node), write_s, hand_out_s)
    return Check(len(by_node), len(groups), gap, took, night.seconds - gap)


def stored_groups(db: str, run: str) -> list[Measured]:
    """Of a stored run."""
    from torchstone.store import open_store

    found = []
    with open_store(db, read_only=True) as store:
        head = store.run_head(run)
        for ident in store.result_ids(head.id):
            one = store.load(ident)
            node = next((arm.environment.node for arm in one.arms if arm.environment), "")
            end = datetime.fromisoformat(one.created).timestamp()
            found.append(Measured(node, end, one.method.elapsed_s))
    return found


def stored_durations(db: str, run: str) -> list[float]:
    """Seconds of each measured group of a stored run."""
    from torchstone.store import open_store

    with open_store(db, read_only=True) as store:
        view = store.run_view(run)
    return list({case.result_id: case.elapsed_s for case in view.cases if case.elapsed_s}.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--db", default="")
    parser.add_argument("--run", default="last")
    parser.add_argument("--seconds", type=float, default=45.0, help="median, without --db")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--nodes", default="12,100,1000")
    parser.add_argument("--write", type=float, default=0.03)
    parser.add_argument("--hand-out", type=float, default=0.005)
    parser.add_argument("--deaths", type=float, default=1 / 720, help="of a node, an hour")
    parser.add_argument("--check", action="store_true", help="a stored run beside its simulation")
    asked = parser.parse_args()
    if asked.check:
        found = check(stored_groups(asked.db, asked.run), asked.write, asked.hand_out)
        print(
            f"{found.groups} groups on {found.nodes} nodes, {found.between_s:.1f} s between two: "
            f"took {found.took_s:.0f} s, simulated {found.simulated_s:.0f} s "
            f"({found.simulated_s / found.took_s:.2f} x)"
        )
        return
    chance = random.Random(0)
    known = stored_durations(asked.db, asked.run) if asked.db else []
    durations = [
        chance.choice(known) if known else asked.seconds * chance.lognormvariate(0.0, SPREAD)
        for _ in range(asked.cases)
    ]
    print("nodes   hours  nodes busy  driver  store  worst wait  retried  lost  node-hours")
    for nodes in map(int, asked.nodes.split(",")):
        night = simulate(durations, nodes, asked.write, asked.hand_out, asked.deaths)
        hours = night.seconds / 3600
        print(
            f"{nodes:5} {hours:7.2f} {night.node_share:11.0%} {night.driver_share:7.1%} "
            f"{night.store_share:6.1%} {night.worst_wait_s:9.2f} s {night.retried:8} "
            f"{night.lost:5} {hours * nodes:11.1f}"
        )


if __name__ == "__main__":
    main()

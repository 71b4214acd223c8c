"""A Ray cluster of two nodes on this machine, as a program of its own: it says the address, ends a
node for each line `kill`, and itself with its input."""

from __future__ import annotations

import os
import sys

from torchstone.machine.folders import own_folder

STORE_BYTES = 100 * 2**20
"""Both nodes take their object store from the same memory."""


def main() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    with own_folder() as folder:  # Ray's default would stay: /tmp/ray
        # It writes the cluster's address to the default folder, wherever the cluster's own is.
        os.environ["RAY_TMPDIR"] = str(folder)
        (folder / "ray").mkdir()
        how = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        head = {**how, "num_cpus": 0, "temp_dir": str(folder)}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        nodes = [cluster.add_node(**how, resources={"bench_slot": 1}, wait=False) for _ in range(2)]
        cluster.wait_for_nodes()
        print(cluster.address, flush=True)
        for line in sys.stdin:
            if line.strip() == "kill":
                cluster.remove_node(nodes.pop(), allow_graceful=False)
        cluster.shutdown()


if __name__ == "__main__":
    main()

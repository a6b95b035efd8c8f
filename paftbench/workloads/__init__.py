"""What is trained: models on real data, and a quadratic whose answers are known in closed form."""

from paftbench.workloads.contract import Batch, DataId, Shard, Workload

__all__ = ["Batch", "DataId", "Shard", "Workload"]

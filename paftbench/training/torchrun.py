"""The torchrun placement: one rank per process, real DDP, and the hooks that `attach` gives a user."""

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paftbench.attachment.checks import Wanted
from paftbench.attachment.hooks import hook_up
from paftbench.faults.fault import Fault
from paftbench.mitigations.contract import Mitigation
from paftbench.ranks.layout import trainable
from paftbench.step.metrics import Clock
from paftbench.training.virtual import LossOf


class Torchrun:
    """One replica behind DDP, with the same surface as `Virtual`; its random state is the process's own."""

    def __init__(
        self,
        model: nn.Module,
        optimizer_of: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        group: dist.ProcessGroup,
        *,
        faults: Sequence[Fault] = (),
        mitigations: Sequence[Mitigation] = (),
        fault_seed: int = 0,
        exact: bool = False,
        find_unused_parameters: bool = False,
        bucket_mb: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.spare = copy.deepcopy(model)
        self.modules = [model]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*broadcast_buffers.*")
            self.ddp = DistributedDataParallel(
                model,
                process_group=group,
                broadcast_buffers=False,
                find_unused_parameters=find_unused_parameters,
                bucket_cap_mb=bucket_mb,
            )
        self.optimizer = optimizer_of([parameter for _, parameter in trainable(model)])
        wanted = Wanted(faults=faults, mitigations=mitigations, seed=fault_seed, exact=exact)
        self.hooks = hook_up(self.ddp, self.optimizer, None, wanted, clock)
        self.pipeline = self.hooks.pipeline
        self.replicas = self.pipeline.replicas
        self.ranks = self.replicas.ranks
        self.layout = self.replicas.layout
        self._device = next(model.parameters()).device

    def backward(self, loss_of: LossOf) -> list[float]:
        """Forward, backward, aggregation, strikes and `on_gradients` of one step; the rank's loss."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.pipeline.clock.section("compute"):
            loss = loss_of(self.ddp, self.ranks.local[0])
            loss.backward()
        return [float(loss.detach())]

    def update(self) -> None:
        """The optimizer's update and `on_step`."""
        with self.pipeline.clock.section("optimizer"):
            self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """Everything the trajectory depends on, as tensors, numbers, lists and dicts."""
        on_gpu = self._device.type == "cuda"
        return {
            "parameters": [parameter.detach() for _, parameter in self.replicas.owners],
            "buffers": [dict(self.modules[0].named_buffers())],
            "optimizer": self.optimizer.state_dict(),
            "random": {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state() if on_gpu else None},
            "pipeline": self.pipeline.state_dict(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        for (_, parameter), value in zip(self.replicas.owners, saved["parameters"], strict=True):
            parameter.detach().copy_(value)
        for name, buffer in self.modules[0].named_buffers():
            buffer.copy_(saved["buffers"][0][name])
        self.optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["random"]["cpu"])
        if saved["random"]["cuda"] is not None:
            torch.cuda.set_rng_state(saved["random"]["cuda"])
        self.pipeline.load_state_dict(saved["pipeline"])

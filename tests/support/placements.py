"""The same few trials in any placement: what `test_same_bits.py` compares."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import paftbench
from paftbench.attachment.hooks import Hooks
from paftbench.faults import DenseFault
from paftbench.faults.cover import Cover
from paftbench.faults.draws import seed_of
from paftbench.faults.slices import Slice
from paftbench.faults.strikes import strikes_at
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout, trainable
from paftbench.ranks.sites import BUILT_SITES
from paftbench.records.trial import OptimizerConfig, Trial
from paftbench.training.loop import losses_of
from paftbench.training.optimizers import optimizer_of
from paftbench.training.torchrun import Torchrun
from paftbench.training.virtual import Virtual
from paftbench.workloads.resnet import ResNet
from support import reference
from support.small_workloads import AwkwardGpt2

STEPS = 20  # not a multiple of the period: replicas differ at the end
CLIP = 0.5
BUCKET_MB = {"resnet": 0.02, "gpt2": 0.1}

FAULTS = (
    paftbench.Fault("bit_flip", name="sent", degree=1e-4, site="contribution", ranks={"random": 1}),
    paftbench.Fault("gaussian_noise", name="noise", degree=1e-3, site="result"),
    paftbench.Fault("bit_flip", name="received", degree=1e-4, site="result"),
    paftbench.Fault("bit_flip", name="weight", degree=1e-4, bits="mantissa", site="parameter", ranks={"random": 1}),
    paftbench.Fault("gaussian_noise", name="drift", degree=1e-5, site="parameter"),
    paftbench.Fault("bit_flip", name="moment", degree=1e-4, bits="mantissa", site="optimizer_state"),
)


@dataclass(frozen=True, kw_only=True)
class Bits:
    """What a process ends with: int32 views of each hosted rank's parameters and buffers, and its log."""

    ranks: tuple[int, ...]
    parameters: list[Tensor]
    buffers: list[Tensor]
    rows: list[dict[str, Any]]
    losses: list[list[float]]
    buckets: int
    syncs: int
    gradient_bytes: int


def trial(name: str, world_size: int, *, optimizer: str, **sync: Any) -> Trial:
    """A trial of `resnet` or `gpt2` under faults at every site, clipped and synchronised."""
    return Trial(
        workload=ResNet() if name == "resnet" else AwkwardGpt2(),
        world_size=world_size,
        batch_per_rank=6,
        steps=STEPS,
        optimizer=OptimizerConfig(name=optimizer, lr=0.05 if optimizer == "sgd" else 3e-3),  # type: ignore[arg-type]
        faults=FAULTS,
        mitigations=(paftbench.Mitigation("clip_value", limit=CLIP), paftbench.Mitigation("paft_sync", **sync)),
        exact=True,
        seed=3,
    )


def trials(world_size: int) -> dict[str, Trial]:
    """By name: the models, optimizers and kinds of synchronisation that are compared."""
    return {
        "resnet": trial("resnet", world_size, optimizer="adamw", period=3, state="all"),
        "gpt2": trial("gpt2", world_size, optimizer="sgd", period=3, overlap=True),
    }


def model_of(planned: Trial) -> nn.Module:
    torch.manual_seed(seed_of("model", planned.seed))
    return planned.workload.model()


def run(planned: Trial, placement: Virtual | Torchrun) -> Bits:
    """Train to the end, as `paftbench.training.loop` does."""
    loss_of = losses_of(planned, placement)
    received: list[int] = []
    if isinstance(placement, Torchrun):
        _count_buckets(placement.hooks, received)
    losses, rows = [], []
    for step in range(planned.steps):
        received.clear()
        losses.append(placement.backward(lambda module, rank, step=step: loss_of(module, rank, step)))
        placement.update()
        rows += placement.pipeline.injector.drain()
    placement.pipeline.flush()
    replicas = placement.replicas
    hosted = range(len(replicas.ranks.local))
    return Bits(
        ranks=replicas.ranks.local,
        parameters=[_words([block[row] for block in replicas.parameters]) for row in hosted],
        buffers=[_words(list(module.buffers())) for module in replicas.modules],
        rows=rows,
        losses=losses,
        buckets=len(received),
        syncs=placement.pipeline.syncs,
        gradient_bytes=replicas.ranks.traffic.bytes - placement.pipeline.extra_bytes,
    )


def virtual(planned: Trial, ranks: Ranks | None = None) -> Bits:
    ranks = ranks or Ranks.virtual(planned.world_size, exact=planned.exact)
    placement = Virtual(
        model_of(planned),
        optimizer_of(planned.optimizer),
        ranks,
        rank_seeds=[seed_of("rank", planned.seed, rank) for rank in ranks.local],
        faults=planned.faults,
        mitigations=planned.mitigations,
        fault_seed=planned.faults_seed,
        split=planned.workload.find_unused_parameters,
    )
    return run(planned, placement)


def torchrun(planned: Trial, bucket_mb: float) -> Bits:
    group = dist.group.WORLD
    assert group is not None
    placement = Torchrun(
        model_of(planned),
        optimizer_of(planned.optimizer),
        group,
        faults=planned.faults,
        mitigations=planned.mitigations,
        fault_seed=planned.faults_seed,
        exact=planned.exact,
        find_unused_parameters=planned.workload.find_unused_parameters,
        bucket_mb=bucket_mb,
    )
    torch.manual_seed(seed_of("rank", planned.seed, dist.get_rank()))
    return run(planned, placement)


def hybrid_rank(world_size: int) -> dict[str, Bits]:
    """Each trial with the ranks spread evenly over the group's processes."""
    group = dist.group.WORLD
    assert group is not None
    return {n: virtual(t, Ranks.of_group(world_size, group, exact=True)) for n, t in trials(world_size).items()}


def torchrun_rank(world_size: int) -> dict[str, Any]:
    """Each trial with one rank per process, then the comparisons with DDP as it is without us."""
    bits: dict[str, Any] = {n: torchrun(t, BUCKET_MB[n]) for n, t in trials(world_size).items()}
    bits["degree 0"] = _degree_zero(trials(world_size)["resnet"])
    return bits


def _degree_zero(planned: Trial) -> tuple[Bits, Tensor, list[float]]:
    """Ours with faults of degree 0, and native DDP."""
    zero = tuple(
        paftbench.Fault(model, name=f"{model} {site}", degree=0, site=site)
        for model in ("bit_flip", "gaussian_noise", "stale_shard")
        for site in BUILT_SITES
    )
    planned = replace(planned, faults=zero, mitigations=(), exact=False, steps=10)
    ours = torchrun(planned, BUCKET_MB["resnet"])
    model = model_of(planned)
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB["resnet"])
    optimizer = optimizer_of(planned.optimizer)([parameter for _, parameter in trainable(model)])
    rank = dist.get_rank()
    torch.manual_seed(seed_of("rank", planned.seed, rank))
    shard = planned.workload.shard(rank, planned.world_size, planned.batch_per_rank, planned.seed)
    losses = []
    for step in range(planned.steps):
        optimizer.zero_grad(set_to_none=True)
        loss = planned.workload.loss(ddp, shard.batch(step))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return ours, _words([parameter for _, parameter in trainable(model)]), losses


def by_reference(planned: Trial, strikes: list[dict[str, Any]]) -> tuple[list[Tensor], list[Tensor]]:
    """Parameters and buffers of each rank by the independent reference, given the logged strikes and the noise."""
    model = model_of(planned)
    layout = Layout.of(model)
    models = [copy.deepcopy(model) for _ in range(planned.world_size)]
    optimizers = [optimizer_of(planned.optimizer)([p for p in m.parameters() if p.requires_grad]) for m in models]
    batches = [
        planned.workload.shard(rank, planned.world_size, planned.batch_per_rank, planned.seed)
        for rank in range(planned.world_size)
    ]
    sync: Any = planned.mitigations[1]
    given = reference.Given(
        strikes=strikes,
        noise=lambda site, step, rank, parameter: _noise(planned, layout, site, step, rank, parameter),
        clip=CLIP,
        period=sync.period,
        sync_all=sync.state == "all",
        overlap=sync.overlap,
    )
    seeds = [seed_of("rank", planned.seed, rank) for rank in range(planned.world_size)]
    reference.train(
        models, optimizers, seeds, lambda m, r, s: planned.workload.loss(m, batches[r].batch(s)), planned.steps, given
    )
    parameters = [_words([p for _, p in trainable(m)]) for m in models]
    return parameters, [_words(list(m.buffers())) for m in models]


def _noise(planned: Trial, layout: Layout, site: str, step: int, rank: int, parameter: str) -> Tensor:
    """The noise on one parameter: what the fault model makes of zeros under the key of (step, rank, parameter)."""
    (fault,) = (fault for fault in planned.faults if fault.model.name == "gaussian_noise" and fault.site == site)
    assert isinstance(fault.model, DenseFault)
    cover = Cover.of(fault, layout, planned.faults_seed)
    (strike,) = (s for s in strikes_at(cover, Ranks.virtual(planned.world_size), step, 0) if s.draws.rank == rank)
    slot = layout.by_name[parameter]
    noise = torch.zeros(slot.stop - slot.start)
    fault.model.change(noise, Slice.of(slot, slot.start, layout.size), {}, strike.draws)
    return noise


def _count_buckets(hooks: Hooks, received: list[int]) -> None:
    reduce = hooks.reduce

    def counted(bucket: Any) -> Any:
        received.append(bucket.buffer_n.numel())
        return reduce(bucket)

    hooks.reduce = counted  # type: ignore[method-assign]


def _words(tensors: list[Tensor]) -> Tensor:
    return torch.cat([t.detach().reshape(-1).clone().view(torch.int32) for t in tensors]) if tensors else torch.empty(0)

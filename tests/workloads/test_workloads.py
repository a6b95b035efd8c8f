from dataclasses import FrozenInstanceError
from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from paftbench.plugins import build_named, spec_of
from paftbench.workloads.contract import Workload
from paftbench.workloads.gpt2 import Gpt2
from paftbench.workloads.llama2 import Llama2
from paftbench.workloads.prepare import prepare
from paftbench.workloads.quadratic import Quadratic
from paftbench.workloads.resnet import ResNet

NANO: list[Workload] = [ResNet(), Gpt2(), Llama2(), Quadratic(noise=0.1)]
each = pytest.mark.parametrize("workload", NANO, ids=lambda workload: workload.name)


def fresh(workload: Workload, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return workload.model().to(dtype)


def cast(batch: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(part.to(dtype) if part.is_floating_point() else part for part in batch)


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@each
def test_training_improves_on_chance_and_on_the_untrained_model(workload: Workload) -> None:
    model, shard = fresh(workload), workload.shard(0, 2, 16, 0)
    adam = torch.optim.Adam(model.parameters(), 0.1 if workload.name == "quadratic" else 3e-3)
    untrained = workload.evaluate(model)
    for step in range(40):
        adam.zero_grad()
        workload.loss(model, shard.batch(step)).backward()
        adam.step()
    trained = workload.evaluate(model)
    if workload.direction == "max":
        assert trained > max(untrained, workload.chance)
    else:
        assert trained < min(untrained, workload.chance)
    assert abs(trained - untrained) > 0.1 * abs(untrained)


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_precision_trains_and_evaluates(workload: Workload, dtype: torch.dtype) -> None:
    model, batch = fresh(workload, dtype), cast(workload.shard(0, 1, 4, 0).batch(0), dtype)
    loss = workload.loss(model, batch)
    loss.backward()
    assert torch.isfinite(loss) and all(p.grad is not None and p.grad.dtype == dtype for p in model.parameters())
    near = pytest.approx(workload.evaluate(fresh(workload)), rel=0.05, abs=0.02)
    assert workload.evaluate(fresh(workload, dtype)) == near


@each
def test_a_batch_is_a_function_of_seed_step_and_rank(workload: Workload) -> None:
    shard, random_state = workload.shard(1, 3, 4, 5), torch.get_rng_state()
    for step in range(3):
        shard.batch(step)
    again = workload.shard(1, 3, 4, 5).batch(2)
    others = [workload.shard(1, 3, 4, 6).batch(2), workload.shard(0, 3, 4, 5).batch(2), shard.batch(1)]
    assert all(torch.equal(a, b) for a, b in zip(shard.batch(2), again, strict=True))
    assert all(not torch.equal(other[0], again[0]) for other in others)
    assert torch.equal(torch.get_rng_state(), random_state)


@each
def test_what_a_trial_may_set_goes_through_json_values_and_back(workload: Workload) -> None:
    assert build_named("workloads", spec_of(workload), "workload") == workload
    with pytest.raises(FrozenInstanceError):
        workload.size = "large"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("workload", "tensors", "count"),
    [
        (ResNet(), 29, 19_810),
        (ResNet(size="resnet18", data="cifar10"), 62, 11_173_962),
        (ResNet(size="resnet50", data="cifar100"), 161, 23_705_252),
        (Gpt2(), 28, 120_576),
        (Gpt2(size="124m"), 148, 124_439_808),
        (Llama2(), 21, 131_904),
        (Llama2(size="124m"), 110, 123_551_232),
        (Llama2(size="7b"), 291, 6_738_415_616),
    ],
    ids=lambda value: f"{value.name}-{value.size}" if isinstance(value, Workload) else "",
)
def test_sizes_have_the_published_parameters(workload: Workload, tensors: int, count: int) -> None:
    with torch.device("meta"):
        model = workload.model()
    assert (len(list(model.parameters())), parameters(model)) == (tensors, count)


def test_gpt2_ties_its_head_and_keeps_dropout() -> None:
    model = fresh(Gpt2())
    assert model.lm_head.weight is model.transformer.wte.weight
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.1}
    batch = Gpt2().shard(0, 1, 2, 0).batch(0)
    assert not torch.equal(Gpt2().loss(model, batch), Gpt2().loss(model, batch))


@pytest.mark.parametrize("workload", [Gpt2(), Llama2()], ids=["gpt2", "llama2"])
def test_the_loss_is_of_the_next_token_and_no_token_sees_those_after_it(workload: Gpt2 | Llama2) -> None:
    model = fresh(workload).eval()
    (tokens,) = workload.shard(0, 1, 2, 0).batch(0)
    assert tokens.shape == (2, 33) and tokens.dtype == torch.int64
    theirs = model(input_ids=tokens, labels=tokens).loss
    torch.testing.assert_close(workload.loss(model, (tokens,)), theirs)
    changed = tokens[:, :-1].clone()
    changed[:, -1] = (changed[:, -1] + 1) % 256
    same = model(input_ids=tokens[:, :-1]).logits[:, :-1], model(input_ids=changed).logits[:, :-1]
    torch.testing.assert_close(*same)


def test_a_bpe_vocabulary_reaches_model_and_chance() -> None:
    workload = Gpt2(vocab=300, context=8)
    assert workload.model().transformer.wte.weight.shape == (300, 64)
    assert workload.chance == log(300) and Gpt2().chance == log(256)
    assert workload.evaluate(workload.model()) == pytest.approx(log(300), rel=0.05)


def test_a_token_file_trains_and_a_model_with_fewer_ids_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAFTBENCH_DATA", str(tmp_path / "data"))
    np.save(tmp_path / "mine.npy", np.arange(60_000, dtype=np.uint32))
    prepare("tokens", path=tmp_path / "mine.npy")
    workload = Llama2(data="tokens")
    assert workload.train_items() == (54_000 - 1) // 32 and workload.chance == log(60_000)
    assert int(workload.shard(0, 1, 2, 0).batch(0)[0].max()) < 54_000
    with pytest.raises(ValueError, match="has 50257 token ids, the data has 60000"):
        Gpt2(size="124m", data="tokens").model()


def test_an_accuracy_counts_no_answer_of_a_model_with_nan_as_right() -> None:
    model = fresh(ResNet())
    with torch.no_grad():
        model.fc.weight.fill_(float("nan"))
    assert ResNet().evaluate(model) == 0


@pytest.mark.parametrize("curvature", [1.0, 0.3, 0.0])
def test_the_quadratics_gradient_is_exactly_curvature_times_distance_plus_noise(curvature: float) -> None:
    for noise in (0.0, 0.1):
        workload = Quadratic(dim=50, curvature=curvature, noise=noise)
        model, batch = fresh(workload), workload.shard(2, 4, 8, 0).batch(7)
        workload.loss(model, batch).backward()
        expected = curvature * (model.theta.detach() - 1) + (batch[0] if noise else 0)
        assert torch.equal(model.theta.grad, expected)


def test_the_quadratics_noise_has_its_std_and_is_independent_between_ranks_and_steps() -> None:
    workload = Quadratic(dim=20_000, noise=0.5)
    noises = torch.stack([workload.shard(r, 3, 8, 0).batch(t)[0] for r in range(3) for t in range(3)])
    assert noises.dtype == torch.float32
    assert float(noises.std()) == pytest.approx(0.5, rel=0.01)
    correlations = torch.corrcoef(noises) - torch.eye(9)
    assert float(correlations.abs().max()) < 0.04


def test_the_quadratics_metric_is_the_loss_without_noise_and_its_chance_what_fresh_parameters_give() -> None:
    workload = Quadratic(dim=5000, curvature=2.0, noise=1.0)
    model = fresh(workload)
    assert workload.evaluate(model) == pytest.approx(float((model.theta.detach().double() - 1).square().sum()))
    assert workload.evaluate(model) == pytest.approx(workload.chance, rel=0.1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "resnet", "size": "resnet81"}, "size 'resnet81' .* did you mean 'resnet18'"),
        ({"name": "resnet", "data": "pydoc"}, "data 'pydoc' is no set for this workload.* Known: cifar10, cifar100"),
        ({"name": "gpt2", "data": "digits"}, "data 'digits' .* Known: pydoc, shakespeare, tokens"),
        ({"name": "gpt2", "size": "7b"}, "size '7b' is none of gpt2"),
        ({"name": "llama2", "context": 65}, r"context .* within \[2, 64\], got 65"),
        ({"name": "llama2", "vocab": 100}, "vocab .* >= 256, got 100"),
        ({"name": "llama2", "adapter": 1}, "unknown key 'adapter'"),
        ({"name": "quadratic", "dim": 0}, "dim .* >= 1, got 0"),
        ({"name": "quadratic", "curvature": float("nan")}, "curvature must be a finite number >= 0"),
        ({"name": "quadratic", "noise": -1.0}, "noise must be a finite number >= 0, got -1.0"),
    ],
)
def test_a_field_out_of_range_is_refused_in_one_line(spec: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        build_named("workloads", spec, "workload")
    assert "\n" not in str(caught.value)


def test_sizes_are_described() -> None:
    for cls in (ResNet, Gpt2, Llama2):
        assert all(cls.sizes.values())
    for cls in (Gpt2, Llama2):
        assert list(cls.sizes) == list(cls.shapes)
        counts = [shape.layers * shape.width for shape in cls.shapes.values()]
        assert all(smaller < larger for smaller, larger in pairwise(counts))

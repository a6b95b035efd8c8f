"""What estimates of time rest on: multiply-adds counted as torch counts them, and without the data."""

from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from paftbench.workloads.contract import Workload
from paftbench.workloads.gpt2 import Gpt2
from paftbench.workloads.images import load_images
from paftbench.workloads.llama2 import Llama2
from paftbench.workloads.quadratic import Quadratic
from paftbench.workloads.resnet import ResNet


@pytest.mark.parametrize("workload", [Gpt2(), Gpt2(context=16, vocab=300), Llama2(), ResNet()], ids=repr)
def test_the_cost_is_what_torch_counts_in_the_loss_of_one_item(workload: Workload) -> None:
    model = workload.model().eval()
    batch = workload.shard(0, 1, 1, 0).batch(0)
    # The counter does not know the fused attention of a CPU. LLaMA's rotary angles are the hundredth left open.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        workload.loss(model, batch)
    cost = workload.cost()
    assert cost is not None and cost.multiply_adds == pytest.approx(counter.get_total_flops() / 2, rel=0.01)


def test_the_cost_of_the_real_models_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAFTBENCH_DATA", str(tmp_path))
    resnet18, resnet50 = ResNet(size="resnet18", data="cifar10").cost(), ResNet(size="resnet50", data="cifar100").cost()
    # 0.56 and 1.3 billion multiply-adds of a 32x32 image, as these CIFAR networks are known to take.
    assert resnet18.multiply_adds == pytest.approx(0.5554e9, rel=1e-3)
    assert resnet50.multiply_adds == pytest.approx(1.298e9, rel=1e-3)
    gpt2 = Gpt2(size="124m", data="tokens").cost()
    # A multiply-add for each of 124 million weights and token, embeddings of positions aside; attention besides.
    assert gpt2.multiply_adds == pytest.approx(1024 * (123.6e6 + 12 * 2 * 1024 * 768), rel=1e-3)


def test_evaluated_items_are_those_that_evaluation_takes() -> None:
    assert ResNet().cost().evaluated == len(load_images("digits").test_NCHW)
    assert Gpt2().cost().evaluated == len(Gpt2().corpus().evaluation(Gpt2().window))


def test_a_workload_that_says_nothing_has_no_cost() -> None:
    assert Quadratic().cost() is None


def test_train_items_are_known_without_the_data_and_true_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ResNet().train_items() == len(load_images("digits").train_NCHW)
    monkeypatch.setenv("PAFTBENCH_DATA", str(tmp_path))
    assert ResNet(size="resnet18", data="cifar10").train_items() == 50_000


def test_a_skeleton_has_the_models_parameters_and_needs_no_data_that_do_not_shape_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shapes(model: torch.nn.Module) -> list[tuple[str, torch.Size]]:
        return [(name, parameter.shape) for name, parameter in model.named_parameters()]

    assert shapes(Gpt2().skeleton()) == shapes(Gpt2().model())
    monkeypatch.setenv("PAFTBENCH_DATA", str(tmp_path))
    with torch.device("meta"):
        assert sum(shape.numel() for _, shape in shapes(Gpt2(size="124m", data="tokens").skeleton())) == 124_439_808

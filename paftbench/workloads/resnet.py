"""Residual networks on small images: torchvision's blocks behind a CIFAR stem. Shapes: B = batch, C = channels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from paftbench.errors import Refused
from paftbench.suggest import did_you_mean
from paftbench.workloads.contract import Batch, Cost, DataId, Shard, Workload
from paftbench.workloads.data import KNOWN, data_id, require_kind
from paftbench.workloads.evaluation import evaluating
from paftbench.workloads.images import CHANNELS, CLASSES, HELD_OUT, SIDES, ImageShard, load_images
from paftbench.workloads.streams import Stream

EVALUATION_BATCH = 500


@dataclass(frozen=True, kw_only=True)
class ImageShape:
    """Blocks and channels of each stage."""

    block: Literal["BasicBlock", "Bottleneck"]
    blocks: tuple[int, ...]
    channels: tuple[int, ...]


SHAPES = {
    "nano": ImageShape(block="BasicBlock", blocks=(1, 1, 1), channels=(8, 16, 32)),
    "resnet18": ImageShape(block="BasicBlock", blocks=(2, 2, 2, 2), channels=(64, 128, 256, 512)),
    "resnet50": ImageShape(block="Bottleneck", blocks=(3, 4, 6, 3), channels=(64, 128, 256, 512)),
}


class CifarResNet(nn.Module):
    """He et al., 2015 (https://arxiv.org/abs/1512.03385): 3x3 stem without pooling, for images of 8 to 64 pixels."""

    def __init__(self, shape: ImageShape, channels: int, classes: int) -> None:
        super().__init__()
        from torchvision.models import resnet

        block: Any = getattr(resnet, shape.block)
        width = shape.channels[0]
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        stages: list[nn.Module] = []
        for number, (blocks, planes) in enumerate(zip(shape.blocks, shape.channels, strict=True)):
            stages.append(_stage(block, width, planes, blocks, stride=1 if number == 0 else 2))
            width = planes * block.expansion
        self.layers = nn.Sequential(*stages)
        self.fc = nn.Linear(width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, C, H, W]."""
        hidden = functional.relu(self.bn1(self.conv1(images)))
        return self.fc(self.layers(hidden).mean(dim=(2, 3)))


def _stage(block: Any, width: int, planes: int, blocks: int, stride: int) -> nn.Sequential:
    out = planes * block.expansion
    shortcut = None
    if stride != 1 or width != out:
        shortcut = nn.Sequential(nn.Conv2d(width, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))
    # Only the first block changes channels and size, so only its shortcut needs weights.
    first = block(width, planes, stride, shortcut)
    return nn.Sequential(first, *(block(out, planes) for _ in range(blocks - 1)))


@dataclass(frozen=True, kw_only=True)
class ResNet(Workload):
    """Image classification; `size` is the network's, `data` the images' (digits, fashion_mnist, cifar10, cifar100)."""

    name: ClassVar[str] = "resnet"
    metric: ClassVar[str] = "accuracy"
    direction: ClassVar[Literal["max", "min"]] = "max"
    imports: ClassVar[tuple[str, ...]] = ("torchvision.models.resnet",)
    sizes: ClassVar[Mapping[str, str]] = {
        "nano": "3 blocks of 8 to 32 channels, 20 thousand parameters",
        "resnet18": "ResNet-18, 11 million parameters",
        "resnet50": "ResNet-50, 24 million parameters",
    }

    size: str = "nano"
    data: str = "digits"

    def __post_init__(self) -> None:
        if self.size not in self.sizes:
            raise Refused(f"size {self.size!r} is none of resnet{did_you_mean(self.size, self.sizes)}")
        require_kind(self.data, ["images"])

    @property
    def data_name(self) -> str:
        return self.data

    def data_id(self) -> DataId:
        return data_id(self.data)

    def train_items(self) -> int:
        return KNOWN[self.data].train_items

    @property
    def chance(self) -> float:
        return 1 / CLASSES[self.data]

    def model(self) -> nn.Module:
        return CifarResNet(SHAPES[self.size], CHANNELS[self.data], CLASSES[self.data])

    def cost(self) -> Cost:
        # Here, not above: the import takes a tenth of a second, which no trial should pay.
        from torch.utils.flop_counter import FlopCounterMode

        side = SIDES[self.data]
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            self.model()(torch.empty(1, CHANNELS[self.data], side, side))
        evaluated = min(HELD_OUT, KNOWN[self.data].test_items)
        return Cost(multiply_adds=counter.get_total_flops() / 2, evaluated=evaluated)

    def shard(self, rank: int, world_size: int, batch: int, seed: int) -> Shard:
        images = load_images(self.data)
        stream = Stream(items=len(images.train_NCHW), rank=rank, world_size=world_size, batch=batch, seed=seed)
        return ImageShard(images=images, stream=stream)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        return functional.cross_entropy(model(images).float(), labels)

    def examples(self) -> int:
        return len(load_images(self.data).test_labels_N)

    def evaluate(self, model: nn.Module) -> float:
        images = load_images(self.data)
        right = 0
        with evaluating(model) as (device, dtype):
            for chunk, labels in zip(
                images.test_NCHW.split(EVALUATION_BATCH), images.test_labels_N.split(EVALUATION_BATCH), strict=True
            ):
                logits = model(images.normalised(chunk).to(device, dtype)).float()
                # A model with NaN weights answers nothing; argmax would let it score class 0.
                answers = torch.where(logits.isnan().any(dim=1), -1, logits.argmax(dim=1))
                right += int((answers.cpu() == labels).sum())
        return right / len(images.test_labels_N)

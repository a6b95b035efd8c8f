"""Image data sets as tensors, and their shards. Shapes: N = images, C = channels, H and W = pixels, B = batch."""

import io
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paftbench.faults.draws import generator_of
from paftbench.workloads.contract import Batch
from paftbench.workloads.data import KNOWN, Stamps, data_directory, digits_csv, stamps_of
from paftbench.workloads.streams import Stream

CHANNELS = {"digits": 1, "fashion_mnist": 1, "cifar10": 3, "cifar100": 3}
SIDES = {"digits": 8, "fashion_mnist": 28, "cifar10": 32, "cifar100": 32}
CLASSES = {"digits": 10, "fashion_mnist": 10, "cifar10": 10, "cifar100": 100}
HELD_OUT = 2000
KEPT = 1 << 22  # pixels up to which a data set is also kept as float32


@dataclass(frozen=True, kw_only=True)
class Images:
    """A data set: bytes as they were, normalised when taken, by the training images' mean and std per channel."""

    train_NCHW: Tensor
    train_labels_N: Tensor
    test_NCHW: Tensor
    test_labels_N: Tensor
    mean_C: Tensor
    std_C: Tensor

    @cached_property
    def small_train_NCHW(self) -> Tensor | None:
        """The training images normalised once, where they are few; `None` where that would take much memory."""
        return self.normalised(self.train_NCHW) if self.train_NCHW.numel() <= KEPT else None

    def normalised(self, images_NCHW: Tensor) -> Tensor:
        """float32 images of mean 0 and std 1."""
        return (images_NCHW.float() - self.mean_C[:, None, None]) / self.std_C[:, None, None]


@dataclass(frozen=True, kw_only=True)
class ImageShard:
    """One rank's images."""

    images: Images
    stream: Stream

    def batch(self, step: int) -> Batch:
        """float32 images [B, C, H, W] and int64 labels [B]."""
        indices_B = torch.from_numpy(self.stream.indices(step))
        small_NCHW = self.images.small_train_NCHW
        if small_NCHW is None:
            images_BCHW = self.images.normalised(self.images.train_NCHW[indices_B])
        else:
            images_BCHW = small_NCHW[indices_B]
        return images_BCHW, self.images.train_labels_N[indices_B]


def load_images(name: str) -> Images:
    """A data set, read once per process; `LookupError` naming the command that gets a missing one."""
    return _load(name, data_directory(), stamps_of(name))


@cache
def _load(name: str, directory: Path, stamps: Stamps) -> Images:
    if name == "digits":
        train_NCHW, train_labels_N, test_NCHW, test_labels_N = _digits()
    else:
        train_NCHW, train_labels_N, test_NCHW, test_labels_N = _torchvision(name, directory)
    mean_C, std_C = _moments(train_NCHW)
    return Images(
        train_NCHW=torch.from_numpy(train_NCHW), train_labels_N=torch.from_numpy(train_labels_N),
        test_NCHW=torch.from_numpy(test_NCHW[:HELD_OUT]), test_labels_N=torch.from_numpy(test_labels_N[:HELD_OUT]),
        mean_C=mean_C, std_C=std_C,
    )  # fmt: skip


_Arrays = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]


def _digits() -> _Arrays:
    table = np.loadtxt(io.BytesIO(digits_csv()), delimiter=",", dtype=np.uint8)
    # The file is ordered by writer: a fixed shuffle puts every writer on both sides of the split.
    table = table[generator_of("digits", "split").permutation(len(table))]
    images_NCHW, labels_N = table[:, :64].reshape(-1, 1, 8, 8), table[:, 64].astype(np.int64)
    train = KNOWN["digits"].train_items
    return images_NCHW[:train], labels_N[:train], images_NCHW[train:], labels_N[train:]


def _torchvision(name: str, directory: Path) -> _Arrays:
    from torchvision import datasets

    cls = {"fashion_mnist": datasets.FashionMNIST, "cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    parts = []
    for train in (True, False):
        data_set = cls(str(directory), train=train, download=False)
        images = np.asarray(data_set.data)
        images = images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        parts += [images, np.asarray(data_set.targets, dtype=np.int64)]
    return parts[0], parts[1], parts[2], parts[3]


def _moments(images_NCHW: NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
    """Mean and std per channel, exact: from counts of the 256 values."""
    values = np.arange(256, dtype=np.float64)
    means, stds = [], []
    for channel in range(images_NCHW.shape[1]):
        # In parts, because bincount takes a copy of eight bytes a pixel.
        parts = (images_NCHW[i : i + 2000, channel].reshape(-1) for i in range(0, len(images_NCHW), 2000))
        # Integers, so exact, and the same on any machine; a float mean would hang on the order of adding.
        counts = np.sum([np.bincount(part, minlength=256) for part in parts], axis=0)
        share = counts / counts.sum()
        mean = float(share @ values)
        means.append(mean)
        stds.append(float(np.sqrt(share @ (values - mean) ** 2)))
    return torch.tensor(means, dtype=torch.float32), torch.tensor(stds, dtype=torch.float32)

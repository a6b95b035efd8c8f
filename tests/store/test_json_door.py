"""The one door through which records are read: whatever lies there, values or one line, at once."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from paftbench.store import files
from paftbench.store.claim import claim_path, is_claimed
from paftbench.store.files import check_inside, read_json, read_lines


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[" * 100_000, "is nested more than 64 deep"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "is nested more than 64 deep"),
        (b'{"a": 1e400}', "is not JSON: the number 1e400... is beyond a float"),
        (b'{"a": -1E+0400}', "is beyond a float"),
        (b'{"a": 1' + b"0" * 400 + b"}", "is beyond a float"),
        (b'{"a": 2' + b"0" * 308 + b"}", "is beyond a float"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is beyond a float"),
        (b'{"a": ' + b"9" * 400 + b".5}", "is beyond a float"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "is not JSON: the key 'c' is given twice"),
        (b'{"a": "\xed\xa0\x80"}', "is not JSON: 'utf-8' codec can't decode"),
        (b"\0" * 50, "is not JSON"),
        (b"", "is not JSON"),
        (b"[]", "holds no JSON mapping"),
    ],
)
def test_what_is_no_record_is_one_line_that_names_the_file(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^/.*result\.json ") as error:
        read_json(path)
    assert said in str(error.value) and "\n" not in str(error.value)
    path.write_bytes(content + b"\n")
    with pytest.raises(ValueError, match=r"^/.*result\.json, line 1, "):
        list(read_lines(path))


@pytest.mark.parametrize(
    "text", ["1e308", "-1.7976931348623157e308", "1e-400", "1" + "0" * 308, "0.00012345678901234567"]
)
def test_numbers_that_a_float_holds_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(f'{{"a": {text}, "b": NaN, "c": "-inf", "d": Infinity}}')
    values = read_json(tmp_path / "x.json")
    assert float(values["a"]) == float(text) and values["b"] != values["b"]
    assert values["c"] == float("-inf") and values["d"] == float("inf")


def test_sixty_levels_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a":' * 60 + "1" + "}" * 60)
    assert read_json(tmp_path / "x.json")["a"]["a"]


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "is no file but a pipe"),
        (Path.mkdir, "is no file but a directory"),
        (lambda path: path.symlink_to("/dev/zero"), "is no file but a device"),
    ],
)
def test_what_is_no_file_is_refused_and_never_waited_for(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / "steps.jsonl"
    make(path)
    for read in (read_json, lambda path: list(read_lines(path))):
        with pytest.raises(ValueError, match=said):
            read(path)


def test_a_socket_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bound(Path("x.json"))
    with pytest.raises(OSError):
        read_json(Path("x.json"))


def test_a_file_without_end_is_refused_by_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 1 << 20)
    path = tmp_path / "x.json"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(ValueError, match="is larger than 1 MiB"):
        read_json(path)
    with pytest.raises(ValueError, match="line 1, is longer than 1 MiB"):
        list(read_lines(path))


@pytest.mark.timeout(30)
def test_a_pipe_in_place_of_a_claim_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(claim_path(tmp_path / "trial"))
    assert is_claimed(tmp_path / "trial")  # whoever made it may still write its name


def test_a_link_may_lead_about_inside_and_not_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "b").symlink_to("a")
    (root / "out").symlink_to("..")
    check_inside(root / "b" / "new.json", root)
    with pytest.raises(ValueError, match="is a link that leads out of"):
        check_inside(root / "out" / "new.json", root)

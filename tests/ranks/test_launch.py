"""Ranks of one machine meet whatever its network looks like, and nothing of theirs listens to others."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import paftbench
from paftbench.cli import doctor
from paftbench.ranks import launch
from paftbench.ranks.launch import chosen_interface, command, environment, start_ranks, torchrun_arguments

LOOPBACK = ("0100007F", "00000000000000000000000001000000")  # as /proc/net/tcp has 127.0.0.1 and ::1
STRANGE = {
    "GLOO_SOCKET_IFNAME": "^lo", "MASTER_ADDR": "nosuchhost.invalid", "MASTER_PORT": "1", "PET_NNODES": "2",
    "PET_RDZV_ENDPOINT": "nosuchhost.invalid:1", "http_proxy": "http://nosuchhost.invalid:1", "RANK": "7",
    "WORLD_SIZE": "9", "LOCAL_RANK": "7",
}  # fmt: skip
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds sockets in /proc, as Linux has it")


def met(folder: Path, prefix: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """What two ranks, started behind a command, say of their meeting."""
    folder.mkdir()
    with (folder / "log.txt").open("wb") as log:
        if prefix:
            agent = command(launch.AGENT, "2", "support.listening", str(folder))
            ranks = subprocess.Popen([*prefix, *agent], stdout=log, stderr=log, env=environment(OMP_NUM_THREADS="1"))
        else:
            ranks = start_ranks(2, "support.listening", str(folder), log=log)
    try:
        assert ranks.wait(250) == 0, (folder / "log.txt").read_text()
    finally:
        ranks.kill()
        ranks.wait()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def check(said: list[dict[str, Any]]) -> None:
    for found in said:
        assert found["sum"] == 4.0 and found["own"]
        assert set(found["own"]) <= set(LOOPBACK) and found["launcher"] == []


@linux
def test_ranks_meet_under_strange_variables_and_listen_on_loopback_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in STRANGE.items():
        monkeypatch.setenv(name, value)
    check(met(tmp_path / "ranks"))


@linux
@pytest.mark.net
@pytest.mark.parametrize(
    "behind",
    [
        ("unshare", "--uts", "sh", "-c", 'hostname nosuchhost && exec "$@"', "sh"),
        ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"),
    ],
    ids=["host name that does not resolve", "no network"],
)
def test_ranks_meet_on_a_machine_without(tmp_path: Path, behind: tuple[str, ...]) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("needs root, unshare and ip")
    check(met(tmp_path / "ranks", behind))


def test_a_users_interface_is_kept_where_it_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "eth0"), (3, "eth1")])
    for given, used in (("eth0", "eth0"), ("eth0,eth1", "eth0,eth1"), ("^lo", "lo"), ("eth0,ib0", "lo"), ("", "lo")):
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", given)
        assert chosen_interface() == environment()["GLOO_SOCKET_IFNAME"] == used
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo0"), (2, "en0")])
    assert chosen_interface() == "lo0"


def test_torchrun_is_told_where_to_meet_and_asks_no_name_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAFTBENCH_MEETING", "")
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0")
    told = torchrun_arguments(3, str(tmp_path), "module", "argument")
    assert {"--local-addr=127.0.0.1", "--rdzv-conf=store_type=file", "--nproc-per-node=3", "--nnodes=1"} <= set(told)
    assert told[-2:] == ["module", "argument"] and "--standalone" not in told
    assert os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"


def test_ranks_are_launched_in_one_place() -> None:
    """No other file of the package names torchrun's flags, gloo's variable or the function that makes a group."""
    words = ("--standalone", "--nproc", "--rdzv", "GLOO_SOCKET_IFNAME", "init_process_group(", "PYTHONPATH")
    root = Path(paftbench.__file__).parent
    said = {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*.py")}
    found = {name for name, text in said.items() if any(word in text for word in words)}
    # Ranks that are threads have a backend of their own, which opens no socket.
    assert found == {"ranks/launch.py", "testing/thread_ranks.py"}


def test_doctor_names_the_variable_that_is_wrong_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "ranks", list)
    monkeypatch.setattr(doctor, "data_sets", list)
    monkeypatch.setattr(doctor, "torch_pair", doctor.interface)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "^lo")
    assert doctor.doctor(as_json=False, out=tmp_path) == 1
    said = capsys.readouterr().out
    assert "FAIL  GLOO_SOCKET_IFNAME: '^lo': no interface '^lo' here" in said
    assert "unset GLOO_SOCKET_IFNAME, or set it to one of them" in said
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    assert doctor.doctor(as_json=False, out=tmp_path) == 0


def test_doctor_says_what_a_host_name_that_does_not_resolve_means(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "gethostname", lambda: "nosuchhost")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    found = doctor.host_name()
    assert found.found == "nosuchhost does not resolve"
    assert "--local-addr=127.0.0.1" in found.todo and "GLOO_SOCKET_IFNAME=lo" in found.todo


def test_a_sweep_runs_where_the_temporary_directory_leaves_no_room_for_sockets(tmp_path: Path) -> None:
    """Under torchrun too: test_torchrun.py runs there."""
    long = tmp_path / "of_a_job_on_a_cluster" / ("x" * 120)
    long.mkdir(parents=True)
    small = {"workload": {"name": "quadratic"}, "steps": 3, "world_size": 2}
    grids = [{"name": "noise", "set": {"faults": [{"model": "gaussian_noise", "degree": 0.1}]}}]
    (tmp_path / "small.yaml").write_text(json.dumps({"schema": 1, "name": "small", "base": small, "grids": grids}))
    run = [sys.executable, "-m", "paftbench.cli.main", "run", "small.yaml", "--out", "runs"]
    done = subprocess.run(run, cwd=tmp_path, env=os.environ | {"TMPDIR": str(long)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "runs").glob("small/*/result.json"))) == 2

"""Stands in for a trial: behaves as `<id>.behaviour` beside its directory says, without training anything."""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

from paftbench.store.files import encode_line, write_json
from support.whole_result import whole_result


def run(directory: Path) -> int:
    """The target of the engine under test."""
    planned = json.loads((directory / "trial.json").read_text())
    with (directory.parent / "starts.txt").open("a") as starts:
        starts.write(planned["id"] + "\n")
    (directory.parent / "start_method.txt").write_text(multiprocessing.get_start_method())
    behaviour: dict[str, Any] = {}
    for name in ("all", planned["id"]):
        path = directory.parent / f"{name}.behaviour"
        if path.exists():
            behaviour.update(json.loads(path.read_text()))
    for row in behaviour.get("steps", []):
        with (directory / "steps.jsonl").open("a") as steps:
            steps.write(encode_line(row))
    time.sleep(behaviour.get("sleep", 0))
    if behaviour.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "exit" in behaviour:
        os._exit(behaviour["exit"])
    if "failure" in behaviour:
        write_json(directory / "failure.json", behaviour["failure"])
        return 1
    write_json(directory / "result.json", whole_result(planned, mark=behaviour.get("mark")))
    return 0

"""Every snippet of `docs/attach.md` runs as it stands, on two ranks."""

import re
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from support.checkout import ROOT
from support.processes import together
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import paftbench

PAGE = ROOT / "docs" / "attach.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def script() -> dict[str, Any]:
    """The names that the page takes as given."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)))
    generator = torch.Generator().manual_seed(dist.get_rank())
    batches = [(torch.randn(6, 8, generator=generator), torch.randint(4, (6,), generator=generator)) for _ in range(12)]

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for inputs, targets in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

    named = list(ddp.named_parameters())
    return {
        "torch": torch, "dist": dist, "nullcontext": nullcontext, "paftbench": paftbench, "ddp": ddp,
        "batches": batches, "train": train, "loss_fn": nn.functional.cross_entropy, "device": "cpu", "backend": "eager",
        "optimizer": torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9),
        "weights": [p for name, p in named if "weight" in name], "biases": [p for name, p in named if "bias" in name],
        "faults": [paftbench.Fault("bit_flip", degree=1e-2, bits="mantissa", site="result", ranks=[1])],
        "mitigations": [paftbench.Mitigation("paft_sync", period=4, overlap=True)],
    }  # fmt: skip


def run(number: int, folder: str) -> dict[str, Any]:
    names = {**script(), "folder": folder}
    code: Callable[..., Any] = compile(SNIPPETS[number], f"docs/attach.md, snippet {number}", "exec")  # type: ignore[assignment]
    exec(code, names)  # type: ignore[arg-type]
    attached = names["attached"]
    return {"steps": attached.steps, "syncs": attached.syncs, "landed": attached.strikes.landed}


def every_snippet(folder: str) -> list[dict[str, Any]]:
    return [run(number, folder) for number in range(len(SNIPPETS))]


EXPECTED = {
    0: {"steps": 12, "syncs": 1},  # a first loop
    1: {"steps": 12, "syncs": 6},  # AMP
    2: {"steps": 3, "syncs": 1},  # accumulation inside no_sync()
    3: {"steps": 3, "syncs": 1},  # accumulation in every pass
    4: {"steps": 12, "syncs": 0},  # torch.compile
    5: {"steps": 12},  # groups and a schedule
    6: {"steps": 12, "syncs": 1, "landed": 0},  # production
    7: {"steps": 24, "syncs": 6},  # a checkpoint
}


def test_every_snippet_of_the_page_runs_and_does_what_it_says() -> None:
    assert len(SNIPPETS) == len(EXPECTED)
    with tempfile.TemporaryDirectory() as folder:
        results = together(every_snippet, 2, folder)
    for rank, found in enumerate(results):
        for number, expected in EXPECTED.items():
            assert expected.items() <= found[number].items(), (number, found[number])
            if rank == 0:
                assert found[number]["landed"] == 0
    assert results[1][4]["landed"] > 0 and results[1][7]["landed"] > 0
    assert results[0][5]["syncs"] >= 1


def test_messages_that_the_page_explains_are_those_of_the_code() -> None:
    table = PAGE.read_text().partition("## What errors mean")[2]
    source = " ".join(
        re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in Path(paftbench.__file__).parent.rglob("*.py")
    )
    messages = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(messages) == 15
    for message in messages:
        start = re.split(r" \.\.\.| is 1, but| \(\.\.\.\)", message)[0]
        assert start in source, message

"""torchrun, tied to its parent: `python -m paftbench.ranks.agent PROCESSES MODULE ARGUMENTS...`."""

import os
import sys
import tempfile

from paftbench.process import announced, die_with_parent
from paftbench.ranks.launch import torchrun_arguments


def main() -> None:
    """Ask to die with the parent, then be torchrun; ranks in turn tie themselves to this process."""
    die_with_parent()
    os.environ.update(announced())
    processes, module, *arguments = sys.argv[1:]
    from torch.distributed.run import main as torchrun

    with tempfile.TemporaryDirectory(prefix="paftbench-") as folder:
        torchrun(torchrun_arguments(int(processes), folder, module, *arguments))


if __name__ == "__main__":
    main()

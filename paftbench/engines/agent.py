"""torchrun, tied to the sweep that started it: `python -m paftbench.engines.agent [torchrun's arguments]`."""

import os

from paftbench.process import announced, die_with_parent


def main() -> None:
    """Ask to die with the parent, then be torchrun; ranks in turn tie themselves to this process."""
    die_with_parent()
    os.environ.update(announced())
    from torch.distributed.run import main as torchrun

    torchrun()


if __name__ == "__main__":
    main()

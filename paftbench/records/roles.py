"""What runs are there for besides their own cell: names that the suite itself gives, on the axis `mitigation`."""

from typing import Final

GOLDEN: Final = "golden"  # no faults, no mitigations
CLEAN: Final = "clean"  # no faults, the cell's mitigations
DDP: Final = "ddp"  # faults, no mitigations
AVERAGING_LIMIT: Final = "averaging_limit"  # faults, and the mitigation below alone
LIMIT_MITIGATION: Final = "regather"

"""What a fork server needs at least: its tie to the sweep. Stands in for `paftbench.engines.preload`, which takes long."""

from paftbench.process import die_with_parent

die_with_parent()

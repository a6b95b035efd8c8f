"""What a fork server needs at least: its tie to the sweep. Stands in for `paftbench.engines.preload`, which is slow."""

from paftbench.process import die_with_parent

die_with_parent()

"""One trial: its ranks, its loop, its checkpoints, and the summary it leaves."""

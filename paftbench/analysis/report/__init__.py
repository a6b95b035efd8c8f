"""The report of a sweep: one HTML file that needs nothing else."""

from paftbench.analysis.report.page import write

__all__ = ["write"]

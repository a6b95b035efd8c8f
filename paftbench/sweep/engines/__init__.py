"""Engines place trials and report how their processes ended; they know nothing of faults and metrics."""

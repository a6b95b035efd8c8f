"""Experiments that are shipped: the quickstart, the core sweeps, the paper's items, gates for CI."""

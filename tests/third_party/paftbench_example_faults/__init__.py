"""Fault models that belong to another project than paftbench."""

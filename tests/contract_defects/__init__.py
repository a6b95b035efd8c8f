"""Planted defects: for each promise of the contract suite a plugin that breaks it, and good ones that break none."""

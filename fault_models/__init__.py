"""Fault models: what changes when a fault strikes, one per file. `README.md` beside this file says how to add one."""

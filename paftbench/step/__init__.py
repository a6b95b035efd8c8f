"""A step's order, the same in every placement, and what is measured of it."""

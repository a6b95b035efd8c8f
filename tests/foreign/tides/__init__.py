"""Predicts the water level of a harbour an hour ahead."""

"""What every plugin promises: the suite behind `paftbench verify`, and behind this project's own tests.

Each promise is a function whose name is the sentence that a broken one is reported with.
"""

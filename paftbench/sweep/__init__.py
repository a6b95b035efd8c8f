"""Running many trials: engines that place them, and a verdict for each that ended without a result."""

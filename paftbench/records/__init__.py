"""What is written of a trial: its plan, its result, rows of steps and injections."""

"""What lets a training survive loud failures: checkpoints that are whole or not there."""

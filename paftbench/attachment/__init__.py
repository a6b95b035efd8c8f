"""The faults and mitigations of a trial in a user's own DDP training."""

"""What produced a result, and when two results come from the same machine."""

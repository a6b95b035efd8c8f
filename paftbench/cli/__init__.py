"""The command line: one file per command; heavy imports stay inside the commands."""

"""Trial directories: files written whole, claims on them, what was planned and what came out."""

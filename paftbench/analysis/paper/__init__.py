"""The paper's numbers and claims, and ours beside them."""

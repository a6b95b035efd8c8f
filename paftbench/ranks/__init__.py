"""The rank axis: what differs between ranks, and every operation that crosses them."""

"""Reading results: never imports what trains."""

"""Show what is going on: top, rates, and events."""

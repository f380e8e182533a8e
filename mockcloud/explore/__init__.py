"""Search for faults: draw short scenarios by seeds, run them, and shrink those that violate what must be so to the fewest steps."""

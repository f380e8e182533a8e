"""Keep NICs as recorded: choose which to look at, compare, judge by the repair policy, repair in threads."""

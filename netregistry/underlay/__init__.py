"""The underlay: from what nodes report to addresses and names that lead to guests' host side. Pure."""

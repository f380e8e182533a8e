"""The node's side of addresses and names: what a registry has given the node for its guests' host side."""

"""Speak nftables by netlink: values, their encoding, one transaction at a time."""

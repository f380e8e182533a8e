"""What each NIC mode means: one module per mode, each with ``plan(nic, settings) -> list[Operation]``."""

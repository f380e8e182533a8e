"""Listen to the node: turn events of the kernel, nftables, Open vSwitch and folders into values."""

"""Define the spoof guard's operations: tables and rules of nftables, flows of Open vSwitch, counters."""

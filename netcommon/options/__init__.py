"""Define the options of a NIC: which there are, what each may be, and which source is stronger."""

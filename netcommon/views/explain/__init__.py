"""Explain a NIC: where its settings come from, what was done for it, and what does not hold."""

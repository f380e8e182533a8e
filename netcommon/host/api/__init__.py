"""Define the interface of a host: what is read of it, what is asked of it, and the facts that it returns."""

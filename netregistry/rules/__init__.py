"""Decide what each request changes, and what it is refused for: pure functions that write into a draft."""

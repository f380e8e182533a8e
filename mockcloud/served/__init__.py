"""Serve a cloud's tasks to programs: HTTP with JSON on a socket of the cloud's folder, one listener for all nodes."""

"""Serve hooks: accept their calls on a socket, do them in the agent, and answer."""

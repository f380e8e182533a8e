"""Show the agent: metrics, history of events, alarms, status, and the socket for questions about them."""

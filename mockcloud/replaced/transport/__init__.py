"""Stand for the threads by which an agent speaks with its registry: in memory with one in this process, or by sockets with a service."""

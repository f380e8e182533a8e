"""Follow one frame through the node, step by step."""

"""Define what a registry holds: networks, NICs, nodes, reports, claims, history; as values, as JSON, and as schemas."""

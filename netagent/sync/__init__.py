"""The node's side of a registry: reports go out, wanted values come in, nothing that lives is ever removed."""

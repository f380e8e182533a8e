"""Speak for the node to its registry: report what it has, and have done what is wanted; nothing that lives is ever removed."""

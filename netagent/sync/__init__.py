"""Speak for the node to a registry: report what it has, and have done what is wanted; so far its state machine, which no agent runs yet."""

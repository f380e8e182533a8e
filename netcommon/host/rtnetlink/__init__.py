"""Speak rtnetlink(7): one socket, messages encoded and decoded, and what is read with them."""

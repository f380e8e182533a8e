"""Speak to Open vSwitch: to its database (RFC 7047), and OpenFlow to its bridges."""

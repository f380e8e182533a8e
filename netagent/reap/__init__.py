"""Undo what no hook was called for: devices that are gone, files of Ganeti; adopt running NICs."""

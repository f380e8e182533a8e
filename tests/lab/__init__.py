"""Tests that need a laboratory which is not part of this project: a Ganeti cluster. Not part of tests/run."""

"""Measurements of the whole system; each module is a command that prints a table."""

"""Closed lists of the keys of files: what is read, what has no effect, and what else is refused."""

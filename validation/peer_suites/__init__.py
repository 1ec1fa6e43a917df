"""Other servers' own test suites, of this server."""

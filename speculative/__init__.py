"""Every decision about decoding, as pure functions and plain data."""

"""A reply as it comes to be, for every protocol."""

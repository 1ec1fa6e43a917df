"""What a reply must be and how it is told apart, for every protocol."""

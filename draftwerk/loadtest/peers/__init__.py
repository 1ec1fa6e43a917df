"""Other servers, each in its own virtual environment, started and measured in turn."""

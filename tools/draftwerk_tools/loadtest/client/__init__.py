"""Asking: bodies, transports, loops that keep to the plan, a watch on the client itself."""

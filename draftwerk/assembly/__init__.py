"""Where models, processes and engine are put together: the only room that sees them all."""

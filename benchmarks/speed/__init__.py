"""How fast: the engine, its steps, speculation over all, and files for other servers."""

"""Settings of the engine, in words, files and programs alike."""

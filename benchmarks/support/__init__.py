"""What several benchmarks use: engines, servers, prompts, streams."""

"""Weights rounded to GGUF's types, and written as a file."""

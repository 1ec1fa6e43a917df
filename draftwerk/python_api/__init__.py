"""The engine in a Python program: `LLM`, `AsyncLLM`, what they are asked and what they return."""

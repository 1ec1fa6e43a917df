"""Prompts to ask: those from files, made-up prompts, and prompts with a checkable answer."""

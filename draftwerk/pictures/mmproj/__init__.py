"""Towers of GGUF models, in files beside them."""

"""Bookkeeping of the paged KV cache: who holds which block, which prefixes are known."""

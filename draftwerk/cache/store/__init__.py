"""Tier two: named blocks on disk, so that they outlive their eviction and the server."""

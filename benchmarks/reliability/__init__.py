"""Servers under kills, disconnections, and far more load than they can bear."""

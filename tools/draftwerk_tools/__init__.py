"""Draftwerk's tools, which serve nobody: load tests, quantisation, trials of approximations."""

"""Tests of the measurements' harness."""

"""Replies of every protocol, cut and sent back."""

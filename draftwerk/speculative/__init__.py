"""Every decision about decoding, as pure functions and plain data.

sampling (distributions and keyed noise), sources and drafting (draft trees and how many of their
nodes to verify), beams, scheduler (continuous batching, chunked prefill), protocol (one device
step).
"""

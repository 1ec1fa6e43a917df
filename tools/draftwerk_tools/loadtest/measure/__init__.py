"""Numbers from rows: percentiles, windows, SLOs, summaries, the knee and the search."""

"""The results of a run: rows, files, tables and comparisons."""

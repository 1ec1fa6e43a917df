"""What a run leaves behind: rows, files, tables and comparisons."""

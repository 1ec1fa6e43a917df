"""`/v1/files` and `/v1/batches`: requests in a file, answered when nothing else is asked."""

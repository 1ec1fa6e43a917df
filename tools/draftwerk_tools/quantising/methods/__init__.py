"""Ways to round weights by what a model's matrices read: a file each, and a row in `METHODS`."""

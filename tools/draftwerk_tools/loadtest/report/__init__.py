"""A single HTML page with inline SVG plots, from a result."""

"""Fields of requests with their bounds, and what each family of them means."""

"""What requests say: fields with their bounds, and what each family of them means."""

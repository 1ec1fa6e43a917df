"""What a reply is made of: reasoning, text and calls of tools; formats, grammar and parser."""

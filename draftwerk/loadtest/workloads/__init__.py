"""What is asked: prompts from files, made-up prompts, and prompts with a checkable answer."""

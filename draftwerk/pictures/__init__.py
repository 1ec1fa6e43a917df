"""Pictures in prompts: an option that attaches to the server, which runs without it.

body ──> reader ──> tower (a process) ──> rows of embeddings, in a folder
  │ a mark in the picture's place                     │
  └──> tokenizer ──> placeholders ──> cache ──> model process: rows in place of embeddings
"""

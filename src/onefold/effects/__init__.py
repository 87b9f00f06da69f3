"""Effects inside a handler: `run`, and what it offers to make them land once."""

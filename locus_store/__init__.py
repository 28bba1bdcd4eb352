"""locus_store: where an AI agent's state lives between runs."""

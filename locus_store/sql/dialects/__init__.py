"""What differs between databases: one module each, and nothing else looks at a dialect's name."""

"""Threads in a relational database: the ORM model, the statements, the schema."""

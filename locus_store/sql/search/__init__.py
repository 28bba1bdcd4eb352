"""The index of words in a relational database: tables and triggers beside those of the store."""

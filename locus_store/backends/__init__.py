"""The backends: one module, or small package, for each way to store threads."""

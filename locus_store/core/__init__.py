"""What every backend shares, without any input or output: documents, states, the entry log, the interface."""

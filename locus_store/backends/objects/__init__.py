"""Threads in a bucket of objects: one driver over a small port, and a port for each kind of service."""

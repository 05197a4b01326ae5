"""Callbacks that an ironic-inspector waits for: forwards them, and fetches the results."""

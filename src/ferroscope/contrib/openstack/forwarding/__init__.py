"""Callbacks that an ironic-inspector waits for: forwarding them, and fetching what it has found."""

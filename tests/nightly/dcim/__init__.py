"""Syncs with a real Nautobot and a real NetBox: the same tests for both."""

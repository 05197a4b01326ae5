"""Secrets of nodes: encrypted in the database, or referenced from another place; decrypted only for a BMC call."""

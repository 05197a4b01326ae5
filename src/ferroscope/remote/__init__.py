"""Clients for servers that may misbehave, such as BMCs: limited in time and size."""

"""Coordination services as hints on which members are alive: the watch over them, and one module for each client."""

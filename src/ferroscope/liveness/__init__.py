"""Coordination services as hints on which members are alive: the selected one, and its watch."""

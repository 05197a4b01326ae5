"""Coordination services as hints on which members are alive: the one that is selected, and the watch over it."""

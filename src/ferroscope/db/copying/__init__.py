"""Copies a whole database into another one, of any kind; ``copy`` says when that is allowed."""

"""Copies a whole database into another one, of any kind; ``runtime.database_copy`` says when that is allowed."""

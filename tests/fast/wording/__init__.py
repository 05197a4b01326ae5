"""The wording of user-visible messages, in tables: how each is provoked, and its exact text.

No other test compares sentences: they assert codes, fields, HTTP statuses, exit codes and identifiers. To add a row,
add ``(name, provoke, text)`` to the table of its area; ``provoke`` returns the text that a user would read.
"""

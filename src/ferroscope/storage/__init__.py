"""Inspection data wherever it is: read it, move it between the database and object stores.

Used by every role; knows the ports ``store`` and ``objects``, and no adapter. What a callback
brings is in the database, committed with its request; it moves once its inspection has ended.
"""

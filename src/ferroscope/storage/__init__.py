"""Inspection data, wherever it is stored: reading it, and moving it between the database and object stores.

Used by every role. The data of a callback is first in the database, committed with its request; it is moved after its
inspection has ended.
"""

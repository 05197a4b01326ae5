"""Reads inspection data from the database and from object stores, and moves it between them.

Used by every role. The data of a callback is first in the database, committed with its request; it is moved after its
inspection has ended.
"""

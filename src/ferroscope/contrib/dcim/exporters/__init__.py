"""Exporters that come with the service; see ``contracts.plugins``. They know nodes of the API, not where they come
from, and make no calls.
"""

"""Exporters that come with the service; see ``contracts.exporters``. They know nodes of the API, not where they come
from, and make no calls.
"""

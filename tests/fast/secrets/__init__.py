"""Tests of keys and references of secrets."""

"""Tests of the command line against the real service."""

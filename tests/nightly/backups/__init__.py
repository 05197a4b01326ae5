"""Backups that are restored."""

"""Calls to servers that may do anything, such as BMCs: bounded in time and in size."""

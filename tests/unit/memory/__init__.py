"""The store in memory, where it is more than its port."""

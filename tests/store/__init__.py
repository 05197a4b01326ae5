"""What the store and the queue do: one suite for each class, on all databases, with real servers."""

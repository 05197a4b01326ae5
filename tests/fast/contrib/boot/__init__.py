"""What boot hosts are given."""

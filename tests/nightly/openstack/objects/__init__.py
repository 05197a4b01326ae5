"""Object stores: the clients, moving data there and back, and what an outage does."""

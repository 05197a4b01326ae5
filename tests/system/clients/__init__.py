"""Third-party clients, as they are published, against the service as it is run."""

"""The service's own commands: they read its configuration and its database. All others are in ferroscope_client."""

"""The service's own API: status, leases, health, versions."""

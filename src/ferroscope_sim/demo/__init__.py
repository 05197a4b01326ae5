"""``ferroscope demo``: the service on a simulated fleet, whose worker is killed meanwhile."""

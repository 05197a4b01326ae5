"""``ferroscope demo``: the real service, real processes and a real SIGKILL, on machines that do not exist."""

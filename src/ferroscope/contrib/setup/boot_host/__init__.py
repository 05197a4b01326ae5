"""Sets up a boot host: what is on the network and on the host, what to write and to start, and a check from outside."""

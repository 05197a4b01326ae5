"""Kubernetes: the controller of failed nodes (the role failover), and Lease objects as hints on who is alive."""

"""What operators see of a running process: structured logs, metrics, what each member tells of itself."""

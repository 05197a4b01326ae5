"""What operators see of a running process: structured logs, metrics, findings, what each member reports."""

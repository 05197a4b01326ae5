"""What a running process shows to operators: structured logs, metrics, findings, and its report as a member."""

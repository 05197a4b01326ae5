"""HTTP for rules, on urllib3."""

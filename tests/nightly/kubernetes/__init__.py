"""Tests on a private Kubernetes cluster: ``make nightly PART=kubernetes``."""

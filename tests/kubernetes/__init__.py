"""Tests on a private Kubernetes cluster: ``make test-kubernetes``."""

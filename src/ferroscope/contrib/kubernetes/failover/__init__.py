"""The node-failure controller for Kubernetes: proves that a failed node is off, then frees its pods and volumes."""

"""Hardware as objects of Kubernetes: the controller that keeps Machine objects and nodes in step."""

"""A cluster of Kubernetes and the machines under it, for the simulation of the failed-node controller.

The API server, the controllers of Kubernetes, the scheduler, kubelets, machines and BMCs are simulated, with
Kubernetes' default times. What really happens on the machines is known here, and the product is told only what it can
ask for.
"""

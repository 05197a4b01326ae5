"""A deterministic simulation of the whole service: the product's own code, one seed, simulated everything else.

``python -m tests.simulation`` runs seeds; docs/explanation/simulation.md says how it works.
"""

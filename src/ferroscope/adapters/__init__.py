"""What provides the ports: the only packages that import a third party's client.

Adapters know the ports and the domain, never each other; ``runtime`` alone builds them.
"""

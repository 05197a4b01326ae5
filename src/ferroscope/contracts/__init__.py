"""The ports of Ferroscope as Protocols; their docstrings are the contract.

Every adapter of a port passes the same conformance suite (tests/store).
"""

"""Devices of a DCIM, such as Nautobot, kept in step with machines: what they should be, and a client of its REST API.

It gets machines from its caller, and makes no calls of our API.
"""

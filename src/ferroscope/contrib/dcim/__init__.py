"""Devices of a DCIM, Nautobot or NetBox, kept in step with machines.

``sync.py`` is one run, for both; ``dialects.py`` has what differs between them; ``machines.py`` what they should have
of a machine; ``rest.py`` a client of their REST APIs. Machines come from the caller: nothing of these calls our API.
``exporters/`` writes the fleet in other forms, and ``bmc_scan/`` finds machines that nobody has written down yet.
"""

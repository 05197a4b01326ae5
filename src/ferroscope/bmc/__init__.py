"""What speaks to BMCs: drivers, each found by its entry point in the group ``ferroscope.bmc``.

``ferroscope.contracts.bmc`` is the contract, for the drivers that come with the service as for any other.
``options`` is what a driver is built with, ``driver_info`` what drivers share, ``loader`` finds them. Each of the
others is a driver; drivers never import each other, and nobody else imports one.
"""

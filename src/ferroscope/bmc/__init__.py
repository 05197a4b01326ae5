"""BMC drivers, each found by its entry point in the group ``ferroscope.bmc``.

``ferroscope.contracts.bmc`` is the contract, for built-in and third-party drivers alike. ``drivers`` has what they are
built with, what they share, and the loader. Drivers never import each other, and nothing else imports a driver.
"""

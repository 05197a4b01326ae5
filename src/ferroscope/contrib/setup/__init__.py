"""``ferroscope setup``: writes the configuration of this host, and makes it a boot host if that is wanted.

Nothing here is needed once the configuration is written: the service reads it, and ``ferroscope doctor`` checks it.
"""

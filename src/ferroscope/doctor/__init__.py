"""``ferroscope doctor``: checks of this host, its boot services, its PXE filter, and the database."""

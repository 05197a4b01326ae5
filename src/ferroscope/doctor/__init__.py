"""``ferroscope doctor``: checks of the database, this host, its boot services and its PXE filter."""

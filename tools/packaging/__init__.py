"""Makes what operators install: an OCI image, a Debian package, and the files for a Python package index."""

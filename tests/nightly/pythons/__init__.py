"""Other versions of Python and of database servers than those of Debian 12."""

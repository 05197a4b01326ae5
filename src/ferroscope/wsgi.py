"""Both APIs as a WSGI application, for Apache httpd with mod_wsgi, gunicorn and other WSGI servers.

The configuration is read when it starts: from the files in ``FERROSCOPE_CONFIG`` (separated by colons), or from the
default one. Importing this module reads nothing, and opens nothing. docs/how-to/serve-with-apache-or-gunicorn.md
explains how to use it; deploy/apache and deploy/gunicorn have complete configurations.
"""

from __future__ import annotations

from ferroscope.runtime.hosted import Application

application = Application()

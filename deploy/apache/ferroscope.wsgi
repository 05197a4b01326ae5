"""Loaded by mod_wsgi in each of its processes, see ferroscope.conf."""

import os

os.environ.setdefault("FERROSCOPE_CONFIG", "/etc/ferroscope/ferroscope.conf")

from ferroscope.wsgi import application  # noqa: E402

application.start()  # now, not with the first request; what is wrong is logged, and requests get 503

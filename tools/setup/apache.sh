# shellcheck shell=bash
# Apache with mod_wsgi, without the package apache2, so there is no service that could be started; nginx as a proxy.
programs nginx:nginx-light apache2:apache2-bin /usr/lib/apache2/modules/mod_wsgi.so:libapache2-mod-wsgi-py3

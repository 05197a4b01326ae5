# shellcheck shell=bash
# MariaDB for private instances of the tests.
programs mariadbd:mariadb-server mariadb-install-db:mariadb-server

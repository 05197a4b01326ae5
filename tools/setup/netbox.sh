# shellcheck shell=bash
# .netbox-venv with NetBox, with which the tests sync machines too.
# It needs Python 3.12 or newer, and compiles its driver of PostgreSQL.
programs pg_config:libpq-dev gcc:gcc /usr/include/stdlib.h:libc6-dev redis-server:redis-server
install_missing
locked_venv netbox tests/support/netbox/netbox-constraints.txt 12

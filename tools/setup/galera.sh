# shellcheck shell=bash
# What makes a Galera cluster of two MariaDB servers and an arbiter.
programs mariadbd:mariadb-server /usr/lib/galera/libgalera_smm.so:galera-4 garbd:galera-arbitrator-4 rsync:rsync lsof:lsof \
    haproxy:haproxy

# shellcheck shell=bash
# What stands before the api, what cuts networks, what checks the units.
programs haproxy:haproxy keepalived:keepalived ip:iproute2 systemd-analyze:systemd

# shellcheck shell=bash
# Prometheus, which checks alerting rules, the dashboards' queries and files of targets.
programs prometheus:prometheus promtool:prometheus

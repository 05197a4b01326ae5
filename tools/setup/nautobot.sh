# shellcheck shell=bash
# .nautobot-venv with Nautobot, with which the tests sync machines.
locked_venv nautobot tests/support/nautobot/nautobot-constraints.txt
programs redis-server:redis-server

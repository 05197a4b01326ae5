# shellcheck shell=bash
# .swift-venv with OpenStack Swift and Keystone, for the object store tests.
locked_venv swift tests/support/swift/swift-constraints.txt

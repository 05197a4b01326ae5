"""The Bare Metal API: nodes, ports, inspection, rules, and the callbacks of ramdisks. One file per resource."""

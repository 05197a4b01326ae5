"""The backends of the PXE filter: nftables, iptables, dnsmasq's host files, noop, and several combined."""

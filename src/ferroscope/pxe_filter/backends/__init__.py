"""The PXE filter's mechanisms: nftables, iptables, dnsmasq's host files, none at all, several at once."""

"""Boot hosts, machines and DHCP clients in network namespaces: what the PXE filter is proven on. Needs root."""

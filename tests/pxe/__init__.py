"""Boot hosts, machines and DHCP clients in network namespaces: what the PXE gate is proven on. Needs root."""

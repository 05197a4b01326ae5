"""What boot hosts serve: address pools, dnsmasq's configuration, the iPXE script. It is text made from settings."""

"""Files for boot hosts, generated from settings: address pools, dnsmasq's configuration, iPXE script, floppy image."""

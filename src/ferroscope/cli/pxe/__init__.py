"""``ferroscope pxe``: boot networks, from the host's firewall to the boot configuration."""

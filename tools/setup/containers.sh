# shellcheck shell=bash
# A container runtime for nodes of Kubernetes; no service of it is started.
programs containerd:containerd runc:runc /usr/lib/cni/bridge:containernetworking-plugins catatonit:catatonit nsenter:util-linux

# shellcheck shell=bash
# What builds a ramdisk, and looks into it.
programs mmdebstrap:mmdebstrap xorriso:xorriso mformat:mtools mksquashfs:squashfs-tools ssh-keygen:openssh-client cpio:cpio newuidmap:uidmap

# shellcheck shell=bash
# What makes and runs the image, and makes and tries the packages.
programs mmdebstrap:mmdebstrap strip:binutils dh:debhelper dpkg-buildpackage:dpkg-dev lintian:lintian gpg:gpg podman:podman runc:runc ip:iproute2 pipx:pipx

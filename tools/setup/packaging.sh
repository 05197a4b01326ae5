# shellcheck shell=bash
# What makes and runs the image, and tries the packages.
programs mmdebstrap:mmdebstrap strip:binutils dpkg-deb:dpkg lintian:lintian gpg:gpg podman:podman runc:runc ip:iproute2 pipx:pipx

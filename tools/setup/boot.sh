# shellcheck shell=bash
# Libvirt, UEFI firmware, a TPM, iPXE and lldpd, for virtual machines that boot as servers do.
programs libvirtd:libvirt-daemon virsh:libvirt-clients \
    '/usr/lib/*/libvirt/connection-driver/libvirt_driver_qemu.so:libvirt-daemon-driver-qemu' \
    /usr/lib/python3/dist-packages/libvirt.py:python3-libvirt qemu-system-x86_64:qemu-system-x86 \
    /usr/share/OVMF/OVMF_CODE_4M.fd:ovmf swtpm:swtpm swtpm_setup:swtpm-tools lldpd:lldpd ipmi_sim:openipmi \
    /usr/lib/ipxe/snponly.efi:ipxe ip:iproute2 busybox:busybox-static

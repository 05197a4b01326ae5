# shellcheck shell=bash
# nftables, dnsmasq, nginx, iPXE, DHCP clients and another server, QEMU, libfaketime and a kernel, for boot hosts in network
# namespaces.

# Takes out of Debian's kernel package for virtual machines what a machine needs to boot from the network: a kernel and
# the drivers of a virtio NIC. The package is not installed, for that would make this host boot from it.
fetch_kernel() {
    local meta=linux-image-cloud-amd64 package work
    find_kernel() { apt-cache depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1; }
    package=$(find_kernel)
    if [ -z "$package" ]; then
        as_root apt-get -q update >&2
        package=$(find_kernel)
    fi
    [ -n "$package" ] || fail "package $meta not found by apt; the virtual machines of the tests boot its kernel"
    say "Fetching the kernel of $package ..."
    rm -rf .boot-kernel
    work=$(mktemp -d)
    (
        cd "$work"
        apt-get -q download "$package" >&2 || { as_root apt-get -q update >&2 && apt-get -q download "$package" >&2; }
        dpkg-deb --fsys-tarfile ./*.deb | tar -x --wildcards './boot/vmlinuz-*' './lib/modules/*/kernel/drivers/virtio/*' \
            './lib/modules/*/kernel/drivers/net/virtio_net.ko*' './lib/modules/*/kernel/drivers/net/net_failover.ko*' \
            './lib/modules/*/kernel/net/core/failover.ko*'
    )
    mkdir .boot-kernel
    cp "$work"/boot/vmlinuz-* .boot-kernel/vmlinuz
    find "$work/lib" -name '*.ko*' -exec cp {} .boot-kernel/ \;
    rm -rf "$work"
    touch .boot-kernel/complete
}

programs nft:nftables dnsmasq:dnsmasq-base busybox:busybox-static dhclient:isc-dhcp-client iptables:iptables \
    ipset:ipset ip:iproute2 nsenter:util-linux nginx:nginx-light dhcpd:isc-dhcp-server /usr/lib/ipxe/undionly.kpxe:ipxe \
    qemu-system-x86_64:qemu-system-x86 cpio:cpio \
    /usr/lib/ipxe/qemu/efi-virtio.rom:ipxe-qemu '/usr/lib/*/faketime/libfaketimeMT.so.1:faketime'
[ -e .boot-kernel/complete ] || fetch_kernel # apt-get only downloads it

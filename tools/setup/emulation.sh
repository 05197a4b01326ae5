# shellcheck shell=bash
# Virtual machines with Secure Boot, and an emulator that lets this kernel run programs of arm64.
programs qemu-system-x86_64:qemu-system-x86 /usr/share/OVMF/OVMF_CODE_4M.ms.fd:ovmf sbverify:sbsigntool \
    qemu-aarch64-static:qemu-user-static update-binfmts:binfmt-support arch-test:arch-test

# Where systemd runs, the packages do it.
run_arm64() {
    local place=/proc/sys/fs/binfmt_misc
    [ ! -e $place/qemu-aarch64 ] || return 0
    [ -e $place/register ] || as_root mount -t binfmt_misc binfmt_misc $place
    as_root update-binfmts --enable qemu-aarch64
}

install_missing
run_arm64

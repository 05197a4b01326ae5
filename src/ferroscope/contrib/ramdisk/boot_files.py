"""The files that firmware reads: the menus of GRUB and ISOLINUX, the iPXE script, and the ISO made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ferroscope.contrib.ramdisk.manifest import Arch
from ferroscope.contrib.ramdisk.plan import Names
from ferroscope.core.boot import IPXE_PATIENCE, kernel_params

VOLUME: Final = "FERROSCOPE"
# The drive that firmware reads on UEFI machines, as large as shim, GRUB and its own tables.
EFI_IMAGE: Final = "boot/efi.img"
EFI_SECTORS: Final = 16384
_SERIAL: Final = "46455252"

# Names below EFI/BOOT by which firmware finds shim, and shim finds GRUB.
EFI_NAMES: Final[dict[Arch, tuple[str, str]]] = {
    "amd64": ("BOOTX64.EFI", "grubx64.efi"),
    "arm64": ("BOOTAA64.EFI", "grubaa64.efi"),
}


def parameters(callback_url: str, extra: str, *, virtual_media: bool = False) -> str:
    """Return the kernel parameters; without a callback URL, the parameter disk or the script has it."""
    extra = f"{extra} boot_method=vmedia".strip() if virtual_media else extra
    if callback_url:
        return kernel_params(callback_url, extra=extra)
    return f"{extra} ipa-collect-lldp=1".strip()


def grub_menu(kernel: str, initramfs: str, arguments: str) -> str:
    """Return GRUB's configuration, which boots at once."""
    return "\n".join(
        [
            "set timeout=0",
            'menuentry "Inspect this machine" {',
            f"    linux {kernel} {arguments}",
            f"    initrd {initramfs}",
            "}",
            "",
        ]
    )


def network_grub_menu(names: Names, callback_url: str, extra: str) -> str:
    """Return GRUB's configuration for machines that boot from the network with Secure Boot."""
    arguments = f"BOOTIF=01-$net_default_mac {parameters(callback_url, extra)}"
    return grub_menu(f"/{names.kernel}", f"/{names.initramfs}", arguments)


def isolinux_menu(kernel: str, initramfs: str, arguments: str) -> str:
    """Return ISOLINUX's configuration, which boots at once."""
    return "\n".join(
        [
            "DEFAULT inspect",
            "PROMPT 0",
            "LABEL inspect",
            f"  KERNEL {kernel}",
            f"  INITRD {initramfs}",
            f"  APPEND {arguments}",
            "",
        ]
    )


def ipxe_script(names: Names, callback_url: str, extra: str) -> str:
    """Return an iPXE script for sites that do not use the one of ``ferroscope pxe config``."""
    default_callback = [f"isset ${{callback}} || set callback {callback_url}"] if callback_url else []
    arguments = "initrd=ramdisk BOOTIF=01-${netX/mac:hexhyp} " + parameters("${callback}", extra)
    return "\n".join(
        [
            "#!ipxe",
            "# Loads the ramdisk from where this script was loaded. Before that, set callback to where the machine is",
            "# to post what it finds, such as http://10.0.0.1:6385/v1/continue_inspection.",
            *default_callback,
            "isset ${callback} || goto unknown",
            f"kernel {IPXE_PATIENCE} --name kernel {names.kernel} {arguments} || exit 1",
            f"initrd {IPXE_PATIENCE} --name ramdisk {names.initramfs} || exit 1",
            "boot || exit 1",
            ":unknown",
            "echo The variable callback is not set",
            "exit 1",
            "",
        ]
    )


def iso_tree(arch: Arch, callback_url: str, extra: str) -> dict[str, str]:
    """Return the text files of the ISO: name -> content."""
    arguments = parameters(callback_url, extra, virtual_media=True)
    tree = {
        # GRUB finds the drive by this file.
        ".disk/info": f"{VOLUME}\n",
        "boot/grub/grub.cfg": grub_menu("/boot/vmlinuz", "/boot/initramfs", arguments),
    }
    if arch == "amd64":
        tree["isolinux/isolinux.cfg"] = isolinux_menu("/boot/vmlinuz", "/boot/initramfs", arguments)
    return tree


def efi_image_commands(image: str, files: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return the commands that make the drive for UEFI. ``files``: pairs of a file and its name below EFI/BOOT."""
    made = ["mformat", "-i", image, "-C", "-T", str(EFI_SECTORS), "-N", _SERIAL, "-v", VOLUME, "::"]
    copies = [["mcopy", "-m", "-i", image, path, f"::/EFI/BOOT/{name}"] for path, name in files]
    return [made, ["mmd", "-i", image, "::/EFI", "::/EFI/BOOT"], *copies]


def iso_command(arch: Arch, tree: str, iso: str, files: Sequence[str]) -> list[str]:
    """Return the command that makes the ISO of a directory with these files.

    Each has a weight of its own, which orders their contents: without, that would be the order of the host's inodes.
    """
    bios = [
        *("-c", "isolinux/boot.cat", "-b", "isolinux/isolinux.bin"),
        *("-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", "-eltorito-alt-boot"),
    ]
    return [
        *("xorriso", "-as", "mkisofs", "-quiet", "-o", iso, "-V", VOLUME, "-r", "-iso-level", "3"),
        *(bios if arch == "amd64" else ["-c", "boot/boot.cat"]),
        *("-e", EFI_IMAGE, "-no-emul-boot"),
        *(
            word
            for number, name in enumerate(sorted(files), start=1)
            for word in ("--sort-weight", str(number), f"/{name}")
        ),
        tree,
    ]

# Runs beside the new root: puts the kernel's modules there, and into .ferroscope what the machine needs before it, and
# the boot loaders. These packages are not installed: they would make an initramfs, and depend on its tools.
root=$1 meta=$2 unneeded=$3
shift 3
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
store=$root/.ferroscope
mkdir -p "$store/debs" "$store/kernel" "$store/boot" "$store/modules"
cd "$store/debs"
kernel=$(apt-cache depends "$meta" | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
[ -n "$kernel" ] || { echo "E: the mirror has no package $meta" >&2; exit 1; }
apt-get -q -o APT::Sandbox::User=root download "$kernel" "$@"
for package in *.deb; do
    dpkg-deb -W --showformat '${Package}\t${Version}\t${Architecture}\n' "$package"
    case $package in
        linux-image-*) dpkg-deb --fsys-tarfile "$package" | tar -x -C "$store/kernel" ;;
        *) dpkg-deb --fsys-tarfile "$package" | tar -x -C "$store/boot" ;;
    esac
done | sort >"$store/packages"
mv "$store"/kernel/boot/vmlinuz-* "$store/vmlinuz"
cd "$store"/kernel/lib/modules/*
version=$(basename "$PWD")
printf '%s\n' "$version" >"$store/version"
rm -rf $unneeded build source
mkdir -p "$root/lib/modules"
mv "$PWD" "$root/lib/modules/"
chroot "$root" depmod "$version"
number=10
for module in $(chroot "$root" modprobe -S "$version" --show-depends -a loop squashfs overlay | sed -n 's/^insmod //p'); do
    cp "$root/$module" "$store/modules/$number-$(basename "$module")"
    number=$((number + 1))
done
find "$store/boot" -name busybox -type f -exec cp {} "$store/busybox" ';'
mkdir "$store/loaders"
find "$store/boot" '(' -name 'shim*.efi.signed' -o -name 'gcd*.efi.signed' -o -name 'grubnet*.efi.signed' \
    -o -name isolinux.bin -o -path '*/bios/ldlinux.c32' ')' -exec cp {} "$store/loaders/" ';'
rm -rf "$store/debs" "$store/kernel" "$store/boot"

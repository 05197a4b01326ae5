#!/usr/bin/env bash
# Prepares a Debian 12 host with python3.11, git and make for running and testing Ferroscope:
#
#   tools/setup.sh NAME [NAME ...]
#
# Each file in tools/setup/ is one environment, and says what it has; "tools/setup.sh" without a name lists them. What is
# there is not changed, so running it again takes no time. It starts no service, and needs root only to install missing
# Debian packages. The tests' folders say in their files "needs" what they need; "make test" sets that up by itself.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

if [ $# -eq 0 ]; then
    for file in tools/setup/*.sh; do
        name=$(basename "$file" .sh)
        [ "$name" = common ] || printf '%-14s%s\n' "$name" "$(sed -n '2s/^# //p' "$file")"
    done
    exit 2
fi

# Only one instance runs at a time; others wait.
exec 9<tools/setup.sh
flock 9

# shellcheck source=tools/setup/common.sh
. tools/setup/common.sh
for name in "$@"; do
    [ "$name" != common ] && [ -e "tools/setup/$name.sh" ] || fail "unknown environment $name: call tools/setup.sh without a name to list them"
done
for name in "$@"; do
    # shellcheck source=/dev/null
    . "tools/setup/$name.sh"
done
install_missing

#!/usr/bin/env bash
# Builds a Kubernetes control plane and hollow nodes for the tests, from Debian's source package, into the cache:
# kube-apiserver, kube-controller-manager, kube-scheduler, kubemark, kubelet and kubectl. Takes 15 minutes on two cores, once.
#
#   tools/kubernetes/build.sh where    prints the directory, which exists only if everything in it was built
#   tools/kubernetes/build.sh          builds it if necessary; needs golang-1.19-go, make, gcc, git and rsync
#
# The directory's name has a hash of the patch and of this script without comments, so what is changed is built anew.
# The system's package sources stay as they are.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ferroscope
version=1.20.2 # of Debian 12
recipe=$({ grep -v '^ *#' "$here/build.sh" && cat "$here/hollow-node.patch"; } | sha256sum | cut -c 1-12)
target=$cache/kubernetes-$version-$recipe

say() { printf '%s\n' "$*" >&2; }

if [ "${1:-}" = where ]; then
    printf '%s\n' "$target"
    exit
fi
[ ! -d "$target" ] || exit 0
mkdir -p "$cache"
exec 8>"$cache/kubernetes.lock" # shared by all source trees of this user
flock 8
[ ! -d "$target" ] || exit 0

work=$(mktemp -d "$cache/kubernetes-build.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
mkdir "$work/bin"

# apt with a configuration of its own: the same archives, but with their sources.
mkdir -p "$work"/apt/{lists,cache}/partial
apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    sed -n 's/^Debian /deb-src /p' | sort -u >"$work/apt/sources.list"
[ -s "$work/apt/sources.list" ] || { say "kubernetes: no package archive of Debian is configured in apt"; exit 1; }
apt() {
    apt-get -q -o "Dir::Etc::SourceList=$work/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/apt/lists" \
        -o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User= "$@" >&2
}
say "Fetching the source of Kubernetes $version ..."
cd "$work"
apt update
apt source --download-only kubernetes
apt-get -q -o APT::Sandbox::User= download golang-github-modern-go-reflect2-dev >&2 # from the system's archives
export GOPATH=$work/go GOCACHE=$work/go-cache GO111MODULE=off CGO_ENABLED=0 PATH=/usr/lib/go-1.19/bin:$PATH
source=$GOPATH/src/k8s.io/kubernetes
mkdir -p "$source"
tar -xf kubernetes_*"$version".orig.tar.* -C "$source" --strip-components 1
cd "$source"
git apply "$here/hollow-node.patch"
# The reflect2 in the package does not work with Go 1.18 or newer: the API server would die of "fatal error: fault".
dpkg-deb --fsys-tarfile "$work"/golang-github-modern-go-reflect2-dev_*.deb | tar -x -C "$work"
rm vendor/github.com/modern-go/reflect2/*.{go,s}
cp "$work"/usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} vendor/github.com/modern-go/reflect2/
rm -f vendor/github.com/modern-go/reflect2/*_test.go

say "Building Kubernetes $version; this takes 15 minutes on two cores, once ..."
export GOFLAGS=-trimpath
nice make generated_files >"$work/make.log" 2>&1 || { tail -n 30 "$work/make.log" >&2; exit 1; }
vendored=k8s.io/kubernetes/vendor/k8s.io
stamp=
for package in component-base/version client-go/pkg/version; do # what --version prints, and what is served at /version
    stamp="$stamp -X $vendored/$package.gitVersion=v$version -X $vendored/$package.gitMajor=1 -X $vendored/$package.gitMinor=20"
done
for program in kube-apiserver kube-controller-manager kube-scheduler kubemark kubelet kubectl; do
    say "Building $program ..."
    nice go build -ldflags "-s -w$stamp" -o "$work/bin/$program" "./cmd/$program"
done
mv "$work/bin" "$target"

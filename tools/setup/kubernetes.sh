# shellcheck shell=bash
# A Kubernetes control plane, hollow nodes and a kubelet, built from Debian's source package.
# They go into ~/.cache/ferroscope; it takes 15 minutes, once.
programs etcd:etcd-server
if [ ! -d "$(tools/kubernetes/build.sh where)" ]; then
    programs /usr/lib/go-1.19/bin/go:golang-1.19-go make:make gcc:gcc git:git rsync:rsync
fi
install_missing
tools/kubernetes/build.sh

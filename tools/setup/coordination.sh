# shellcheck shell=bash
# etcd, ZooKeeper and Redis for private instances of the tests.
programs etcd:etcd-server /usr/share/java/zookeeper.jar:zookeeper redis-server:redis-server

"""etcd, ZooKeeper or Redis as the coordination service, through Tooz."""

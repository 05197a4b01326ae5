"""OpenStack: an attached Ironic, imports from Ironic and ironic-inspector, and callbacks that are forwarded to one;
users of Keystone, inspection data in Swift, and notifications in the form of Ironic's.
"""

"""The Bmc port over Redfish, with sushy.

``info`` (what a node says of its BMC) and ``bmc`` (the port) are light and imported by the api
too; everything that imports sushy or requests is imported with the first call to a BMC.
"""

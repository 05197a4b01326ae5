"""The BMC driver for Redfish, based on sushy.

``info`` (the fields of ``driver_info``) and ``driver`` import little, because the api imports them; everything that
imports sushy or requests is imported with the first call to a BMC.
"""

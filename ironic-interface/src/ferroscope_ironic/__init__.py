"""An inspect interface for Ironic: inspections are done by Ferroscope, to which this Ironic is attached."""

//! Operations over the software NIC.

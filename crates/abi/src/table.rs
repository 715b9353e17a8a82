//! The exported functions as one table.

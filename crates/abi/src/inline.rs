//! What C programs get from `static inline` functions and no library exports.

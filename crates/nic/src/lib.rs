//! adverb-nic

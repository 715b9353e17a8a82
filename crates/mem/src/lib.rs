//! adverb-mem

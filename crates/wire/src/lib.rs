//! adverb-wire

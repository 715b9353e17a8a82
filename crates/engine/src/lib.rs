//! adverb-engine

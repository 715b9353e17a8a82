//! adverb

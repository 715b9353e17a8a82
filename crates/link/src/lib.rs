//! adverb-link

//! adverb-provider

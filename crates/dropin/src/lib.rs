//! adverb-dropin

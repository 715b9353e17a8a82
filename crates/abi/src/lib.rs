//! adverb-abi

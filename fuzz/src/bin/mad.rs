#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| adverb_fuzz::mad::run(input));

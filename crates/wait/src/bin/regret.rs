//! Prints the tables of docs/waiting.md.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", adverb_wait::sim::table::regret());
    println!();
    print!("{}", adverb_wait::sim::table::facing());
}

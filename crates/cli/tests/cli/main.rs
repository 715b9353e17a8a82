//! The program as its users meet it.

mod arguments;
mod common;
mod learn;
mod measure;
mod run;
mod sysfs;

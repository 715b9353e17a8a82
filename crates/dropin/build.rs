//! Link arguments of the drop-in library, and the directory that holds it under its eight names.
//!
//! The nodes of `nodes.map` need lld: GNU ld refuses a second version script beside the one that rustc passes. rustc
//! brings its own lld and uses it by default on x86_64 Linux since 1.90; the arguments here make that so elsewhere too.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The names under which programs look for us.
const NAMES: [&str; 8] = [
    "libibverbs.so.1",
    "libibverbs.so",
    "librdmacm.so.1",
    "librdmacm.so",
    "libmlx5.so.1",
    "libmlx5.so",
    "libefa.so.1",
    "libefa.so",
];

fn main() {
    let here =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=nodes.map");
    link_argument("-Wl,-soname,libibverbs.so.1");
    link_argument(&format!(
        "-Wl,--version-script={}",
        here.join("nodes.map").display()
    ));
    // Python and NCCL close the library while threads of ours still run.
    link_argument("-Wl,-z,nodelete");
    link_argument("-fuse-ld=lld");
    if let Some(dir) = own_lld() {
        link_argument(&format!("-B{}", dir.display()));
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // OUT_DIR is target/[triple/]PROFILE/build/PACKAGE-HASH/out.
    let profile = out
        .ancestors()
        .nth(3)
        .expect("OUT_DIR lies four levels under the target directory");
    if let Err(error) = name_library(profile) {
        println!(
            "cargo:warning=cannot name the drop-in library in {}: {error}",
            profile.display()
        );
    }
}

fn link_argument(argument: &str) {
    println!("cargo:rustc-cdylib-link-arg={argument}");
}

/// The directory in which rustc keeps its lld under the name that gcc looks for.
fn own_lld() -> Option<PathBuf> {
    let rustc = env::var_os("RUSTC")?;
    let host = env::var("HOST").ok()?;
    let output = Command::new(rustc)
        .args(["--print", "sysroot"])
        .output()
        .ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let dir = Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(host)
        .join("bin/gcc-ld");
    dir.is_dir().then_some(dir)
}

/// Makes `PROFILE/lib/adverb/NAME` for each name, all of them links to the one file.
///
/// One file, because the loader recognises it by its inode and maps it once: one NIC per process, whichever of the
/// names are loaded. The links dangle until the library is linked, which happens after this program has run.
fn name_library(profile: &Path) -> std::io::Result<()> {
    let dir = profile.join("lib/adverb");
    fs::create_dir_all(&dir)?;
    // Cargo leaves the library in deps/ for `build` and `test` alike, and a second name beside it for `build` only.
    let target = Path::new("../../deps/libadverb_dropin.so");
    for name in NAMES {
        let link = dir.join(name);
        if fs::read_link(&link).is_ok_and(|to| to == target) {
            continue;
        }
        match fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => symlink(target, &link)?,
        }
    }
    Ok(())
}

//! The library as the dynamic loader sees it: every name at each of its versions, one mapping for all its file names.
#![allow(unreachable_pub, reason = "the table is the library's")]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../src/table/mod.rs"]
mod table;

const PRIVATE: [&str; 5] = [
    "IBVERBS_PRIVATE_34",
    "IBVERBS_PRIVATE_57",
    "IBVERBS_PRIVATE_59",
    "IBVERBS_PRIVATE_64",
    "IBVERBS_PRIVATE_65",
];

/// Every row of the table: a name and its version nodes.
fn rows() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut rows = Vec::new();
    macro_rules! collect {
        ($name:ident, $kind:ident, private) => {
            rows.push((stringify!($name), PRIVATE.to_vec()));
        };
        ($name:ident, $kind:ident, $($version:literal),+) => {
            rows.push((stringify!($name), vec![$($version),+]));
        };
    }
    table::ibverbs!(collect);
    table::private!(collect);
    table::rdmacm!(collect);
    table::mlx5!(collect);
    table::efa!(collect);
    rows.push(("verbs_allow_disassociate_destroy", PRIVATE.to_vec()));
    rows
}

/// target/PROFILE/lib/adverb, seen from this test program in target/PROFILE/deps.
fn directory() -> PathBuf {
    let program = std::env::current_exe().expect("a test program knows where it is");
    let profile = program.ancestors().nth(2).expect("it lies in deps/");
    profile.join("lib/adverb")
}

fn open(path: &Path) -> *mut c_void {
    let name = CString::new(path.as_os_str().as_bytes()).expect("no zero in a path");
    // SAFETY: the library's constructors do nothing but what any Rust library's do.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "{}: {}", path.display(), last_error());
    library
}

fn last_error() -> String {
    // SAFETY: NULL or a C string.
    unsafe {
        let text: *const c_char = libc::dlerror();
        if text.is_null() {
            String::new()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

fn find(library: *mut c_void, name: &str, version: &str) -> *mut c_void {
    let (name, version) = (
        CString::new(name).expect("no zero"),
        CString::new(version).expect("no zero"),
    );
    // SAFETY: the library is open and both are C strings.
    unsafe { libc::dlvsym(library, name.as_ptr(), version.as_ptr()) }
}

#[test]
fn every_name_is_found_at_each_of_its_versions() {
    let library = open(&directory().join("libibverbs.so.1"));
    let rows = rows();
    assert!(rows.len() > 350, "the table has {} names", rows.len());
    for (name, versions) in rows {
        for version in versions {
            assert!(
                !find(library, name, version).is_null(),
                "{name}@{version} is missing"
            );
        }
    }
}

#[test]
fn the_names_that_nccl_looks_up_are_at_the_version_it_wants() {
    let names = "get_device_list free_device_list get_device_name open_device close_device get_async_event \
        ack_async_event query_device query_port query_gid query_qp alloc_pd dealloc_pd reg_mr dereg_mr create_cq \
        destroy_cq create_qp modify_qp destroy_qp fork_init event_type_str";
    let names: Vec<_> = names.split_whitespace().collect();
    assert_eq!(names.len(), 22);
    let library = open(&directory().join("libibverbs.so"));
    for name in names {
        assert!(
            !find(library, &format!("ibv_{name}"), "IBVERBS_1.1").is_null(),
            "ibv_{name}@IBVERBS_1.1"
        );
    }
    for (name, version) in [
        ("ibv_reg_mr_iova2", "IBVERBS_1.8"),
        ("ibv_query_ece", "IBVERBS_1.10"),
        ("ibv_set_ece", "IBVERBS_1.10"),
        ("ibv_reg_dmabuf_mr", "IBVERBS_1.12"),
        ("ibv_query_port_speed", "IBVERBS_1.16"),
    ] {
        assert!(!find(library, name, version).is_null(), "{name}@{version}");
    }
}

#[test]
fn names_without_a_version_find_the_default_and_labels_stay_inside() {
    let library = open(&directory().join("libibverbs.so.1"));
    // SAFETY: the library is open and the names are C strings.
    unsafe {
        assert_eq!(
            libc::dlsym(library, c"ibv_open_device".as_ptr()),
            find(library, "ibv_open_device", "IBVERBS_1.1")
        );
        assert!(!libc::dlsym(library, c"adverb_dropin_marker".as_ptr()).is_null());
        assert!(libc::dlsym(library, c"__v_ibv_open_device".as_ptr()).is_null());
    }
}

#[test]
fn every_file_name_is_the_same_library_mapped_once() {
    let names = [
        "libibverbs.so.1",
        "libibverbs.so",
        "librdmacm.so.1",
        "librdmacm.so",
        "libmlx5.so.1",
        "libmlx5.so",
        "libefa.so.1",
        "libefa.so",
    ];
    let handles: Vec<_> = names
        .iter()
        .map(|name| open(&directory().join(name)))
        .collect();
    assert!(handles.iter().all(|handle| *handle == handles[0]));
    let file = fs::canonicalize(directory().join(names[0])).expect("the links lead somewhere");
    let maps = fs::read_to_string("/proc/self/maps").expect("a process can read its mappings");
    let starts = maps
        .lines()
        .filter(|line| {
            line.split_whitespace()
                .nth(5)
                .is_some_and(|path| Path::new(path) == file)
        })
        .filter(|line| {
            line.split_whitespace()
                .nth(2)
                .is_some_and(|offset| offset == "00000000")
        })
        .count();
    assert_eq!(starts, 1, "{maps}");
}

#[test]
fn what_is_not_built_answers_in_the_style_of_its_function() {
    let library = open(&directory().join("libibverbs.so.1"));
    let errno = || std::io::Error::last_os_error().raw_os_error();
    type Call<T> = extern "C" fn(usize, usize) -> T;
    // SAFETY: the functions take pointers and numbers, and look at none of them.
    unsafe {
        let object: Call<*mut c_void> =
            std::mem::transmute(find(library, "mlx5dv_create_cq", "MLX5_1.1"));
        assert!(object(0, 0).is_null());
        assert_eq!(errno(), Some(libc::EOPNOTSUPP));
        let connect: Call<c_int> = std::mem::transmute(find(library, "rconnect", "RDMACM_1.0"));
        assert_eq!((connect(0, 0), errno()), (-1, Some(libc::EOPNOTSUPP)));
        let supported: Call<bool> =
            std::mem::transmute(find(library, "mlx5dv_is_supported", "MLX5_1.8"));
        assert!(!supported(0, 0));
        let efa: Call<c_int> = std::mem::transmute(find(library, "efadv_query_device", "EFA_1.1"));
        assert_eq!(efa(0, 0), libc::EOPNOTSUPP);
        let driver: Call<()> = std::mem::transmute(find(
            library,
            "verbs_register_driver_34",
            "IBVERBS_PRIVATE_34",
        ));
        driver(0, 0);
    }
}

/// Runs a program on the library. `None` when the program is not installed.
fn run(program: &str, arguments: &[&OsStr]) -> Option<std::process::Output> {
    let output = Command::new("timeout")
        .args(["20", program])
        .args(arguments)
        .env("LD_LIBRARY_PATH", directory())
        .env("LD_BIND_NOW", "1")
        .output()
        .expect("timeout can be run");
    // 127: timeout did not find it.
    (output.status.code() != Some(127) || !output.stderr.windows(9).any(|w| w == b"No such f"))
        .then_some(output)
}

#[test]
fn programs_of_the_distribution_start_and_complain_of_nothing() {
    for (program, argument) in [
        ("ibv_devinfo", "-v"),
        ("ibv_devices", "-h"),
        ("ib_send_lat", "--version"),
    ] {
        let Some(output) = run(program, &[OsStr::new(argument)]) else {
            eprintln!("skipped: {program} is not installed");
            continue;
        };
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!text.contains("version information"), "{program}: {text}");
        assert!(!text.contains("symbol lookup"), "{program}: {text}");
        if program == "ibv_devinfo" {
            let shown = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.is_empty(),
                "{program}: {text}"
            );
            assert!(
                shown.contains("adverb0") && shown.contains("PORT_ACTIVE"),
                "{shown}"
            );
        }
    }
}

//! Our layouts and constants against the C headers of this machine.
//!
//! Compiles and runs a generated C program. Without a C compiler or the headers (Debian:
//! `libibverbs-dev`, `librdmacm-dev`) the tests say so and pass: nothing else here needs them.
//! `ADVERB_TEST_CFLAGS` adds options, such as `-I` with the headers of another rdma-core.
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use adverb_abi::layout::{Layout, cm, verbs};

/// What rdma-core 44 does not have yet: whole structures have no field name.
const NEWER: &[(&str, &str)] = &[
    ("ibv_port_attr", "active_speed_ex"),
    ("ibv_qp_ex", "wr_flush"),
    ("verbs_context", "free_buf"),
    ("verbs_context", "alloc_buf"),
    ("verbs_context", "dm_export_dmabuf_fd"),
    ("verbs_context", "reg_mr_ex"),
    ("verbs_context", "dealloc_dmah"),
    ("verbs_context", "alloc_dmah"),
    ("ibv_mr_init_attr", ""),
    ("ibv_dmah_init_attr", ""),
    ("ibv_dmah", ""),
    ("ibv_comp_cntr_caps", ""),
    ("ibv_comp_cntr", ""),
    ("ibv_comp_cntr_init_attr", ""),
    ("ibv_qp_attach_comp_cntr_attr", ""),
];

/// Beginnings of the names of constants that rdma-core 44 does not have yet.
const NEWER_CONSTANTS: &[&str] = &[
    "IBV_ACCESS_FLUSH_",
    "IBV_COMP_CNTR_TYPE_",
    "IBV_DEVICE_CC_DMA_BOUNCE",
    "IBV_DMAH_INIT_ATTR_MASK_",
    "IBV_EVENT_DEVICE_SPEED_CHANGE",
    "IBV_FLUSH_",
    "IBV_ODP_SUPPORT_ATOMIC_WRITE",
    "IBV_ODP_SUPPORT_FLUSH",
    "IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC",
    "IBV_PORT_LINK_SPEED_XDR_SUP",
    "IBV_QP_EX_WITH_FLUSH",
    "IBV_QUERY_QP_DATA_IN_ORDER_",
    "IBV_REG_MR_MASK_",
    "IBV_TPH_MEM_TYPE_",
    "IBV_WC_FLUSH",
    "IBV_WR_FLUSH",
    "RAI_DNS",
    "RAI_SA",
    "RDMA_CM_EVENT_ADDRINFO_",
    "RDMA_CM_EVENT_INTERNAL",
    "RDMA_CM_EVENT_USER",
];

struct Headers {
    include: &'static str,
    /// A header whose absence means that the package is not installed.
    probe: &'static str,
}

const VERBS: Headers = Headers {
    include: "#include <infiniband/verbs.h>\n",
    probe: "infiniband/verbs.h",
};
const CM: Headers = Headers {
    include: "#include <infiniband/sa.h>\n#include <rdma/rdma_cma.h>\n",
    probe: "rdma/rdma_cma.h",
};

impl Headers {
    fn present(&self) -> bool {
        let present = self.compiles("");
        if !present {
            eprintln!("skipped: no {} (or no C compiler)", self.probe);
        }
        present
    }

    fn compiles(&self, body: &str) -> bool {
        compile(&self.program(body), None).is_ok()
    }

    fn program(&self, body: &str) -> String {
        format!(
            "{}#include <stddef.h>\n#include <stdio.h>\nint main(void) {{\n{body}return 0;\n}}\n",
            self.include
        )
    }

    /// Runs a C body that prints `name value` lines.
    fn run(&self, body: &str) -> BTreeMap<String, i128> {
        let dir = tempfile::tempdir().expect("the temporary directory is writable");
        let binary = dir.path().join("probe");
        if let Err(complaint) = compile(&self.program(body), Some(&binary)) {
            panic!("the generated program does not compile:\n{complaint}");
        }
        let output = Command::new(&binary)
            .output()
            .expect("the compiled program runs");
        String::from_utf8(output.stdout)
            .expect("the program prints ASCII")
            .lines()
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').expect("a name and a number");
                (name.to_owned(), value.parse().expect("a decimal number"))
            })
            .collect()
    }
}

/// Compiles C from standard input; without an output file only checks it. Fails with what the
/// compiler said.
fn compile(program: &str, output: Option<&Path>) -> Result<(), String> {
    use std::io::Write as _;
    let mut cc = Command::new("cc");
    cc.args(
        std::env::var("ADVERB_TEST_CFLAGS")
            .unwrap_or_default()
            .split_whitespace(),
    );
    match output {
        Some(path) => cc.arg("-o").arg(path),
        None => cc.arg("-fsyntax-only"),
    };
    cc.args(["-x", "c", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = cc.spawn().map_err(|error| error.to_string())?;
    let mut stdin = child.stdin.take().expect("standard input is piped");
    // A compiler that stops reading early has failed, and its status says so.
    let _ = stdin.write_all(program.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("the compiler is our child");
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Fields of newer headers are compared only if these headers have them.
fn has(headers: &Headers, layout: &Layout, field: &str) -> bool {
    if !NEWER.contains(&(layout.name, field)) {
        return true;
    }
    let ty = format!("{} {}", layout.kind, layout.name);
    headers.compiles(&match field {
        "" => format!("(void)sizeof({ty});\n"),
        _ => format!("(void)offsetof({ty}, {field});\n"),
    })
}

fn compare(headers: &Headers, layouts: &[Layout]) {
    if !headers.present() {
        return;
    }
    let mut body = String::new();
    let mut expected = BTreeMap::new();
    for layout in layouts.iter().filter(|layout| has(headers, layout, "")) {
        let Layout {
            kind, name, size, ..
        } = *layout;
        let (present, absent): (Vec<_>, Vec<_>) = layout
            .fields
            .iter()
            .partition(|(field, _)| has(headers, layout, field));
        let mut line = |key: String, expression: String, value: usize| {
            writeln!(body, "printf(\"{key} %zu\\n\", (size_t)({expression}));")
                .expect("a string takes everything");
            expected.insert(key, value as i128);
        };
        if absent.is_empty() {
            line(name.to_owned(), format!("sizeof({kind} {name})"), size);
        }
        for &(field, offset) in present {
            // Rust's keywords are plain names in C.
            let field = field.trim_start_matches("r#");
            let at = format!("offsetof({kind} {name}, {field})");
            // This one grows at its front: only distances from its end stay.
            if name == "verbs_context" {
                let back = format!("sizeof({kind} {name}) - {at}");
                line(format!("{name}.-{field}"), back, size - offset);
            } else {
                line(format!("{name}.{field}"), at, offset);
            }
        }
    }
    assert_eq!(headers.run(&body), expected);
    println!("{}: {} numbers agree", headers.probe, expected.len());
}

#[test]
fn structures_of_verbs_h_agree_with_the_installed_headers() {
    compare(&VERBS, verbs::LAYOUTS);
}

#[test]
fn structures_of_rdma_cma_h_agree_with_the_installed_headers() {
    compare(&CM, cm::LAYOUTS);
}

/// Constants of a source file of ours, read as text: a list of names kept by hand would rot.
fn constants(source: &str) -> Vec<(String, i128)> {
    let mut constants = Vec::new();
    // The formatter breaks the longest definitions after the equals sign.
    for line in source.replace("=\n    ", "= ").lines() {
        let Some(rest) = line.strip_prefix("pub const ") else {
            continue;
        };
        let (name, rest) = rest.split_once(':').expect("a constant has a type");
        if !["IBV_", "RDMA_", "RAI_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            continue;
        }
        let (_, value) = rest.split_once(" = ").expect("a constant has a value");
        let value = value.trim_end_matches(';').replace('_', "");
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => i128::from_str_radix(hex, 16).expect("a hexadecimal number"),
            None => text.parse().expect("a decimal number"),
        };
        let value = match value.split_once(" << ") {
            Some((base, shift)) => number(base) << number(shift),
            None => number(&value),
        };
        constants.push((name.to_owned(), value));
    }
    constants
}

#[test]
fn constants_agree_with_the_installed_headers() {
    let both = Headers {
        include: "#include <rdma/rdma_cma.h>\n",
        probe: "rdma/rdma_cma.h",
    };
    if !both.present() {
        return;
    }
    let sources = [
        include_str!("../src/types/ah.rs"),
        include_str!("../src/types/cm.rs"),
        include_str!("../src/types/cq.rs"),
        include_str!("../src/types/device.rs"),
        include_str!("../src/types/event.rs"),
        include_str!("../src/types/flow.rs"),
        include_str!("../src/types/memory.rs"),
        include_str!("../src/types/qp.rs"),
        include_str!("../src/types/srq.rs"),
        include_str!("../src/types/wr.rs"),
    ];
    let expected: BTreeMap<String, i128> = sources
        .iter()
        .flat_map(|source| constants(source))
        .filter(|(name, _)| {
            let newer = NEWER_CONSTANTS
                .iter()
                .any(|prefix| name.starts_with(prefix));
            !newer || both.compiles(&format!("(void)({name});\n"))
        })
        .collect();
    assert!(
        expected.len() > 300,
        "only {} constants were found",
        expected.len()
    );
    let body = expected.keys().fold(String::new(), |mut body, name| {
        writeln!(body, "printf(\"{name} %lld\\n\", (long long)({name}));")
            .expect("a string takes everything");
        body
    });
    assert_eq!(both.run(&body), expected);
    println!("{} constants agree", expected.len());
}

//! Capture files, as far as ours need it: classic pcap, little-endian, Ethernet, one RoCEv2 packet per frame.

use std::path::{Path, PathBuf};

/// The IP packets of one capture file.
pub(crate) fn read(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).expect("a capture can be read");
    let (header, mut rest) = bytes.split_at(24);
    assert_eq!(
        header[..4],
        [0xD4, 0xC3, 0xB2, 0xA1],
        "{}: not a little-endian pcap",
        path.display()
    );
    assert_eq!(word(&header[20..]), 1, "{}: not Ethernet", path.display());
    let mut packets = Vec::new();
    while let Some((record, after)) = rest.split_at_checked(16) {
        let (frame, after) = after.split_at(word(&record[8..]) as usize);
        rest = after;
        packets.push(frame[14..].to_vec());
    }
    packets
}

/// Every capture in tests/captures whose name begins so, by name.
pub(crate) fn all(prefix: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .expect("the captures are part of the repository")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "pcap")
        })
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        })
        .collect();
    paths.sort();
    paths
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().expect("four bytes"))
}

//! The shared-memory link of a process that a hostile one has handed a ring.

use std::cell::RefCell;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

use adverb_link::shm::{Place, ShmLink};
use adverb_link::{Arrival, Link, MAX_PACKET};
use adverb_mem::ring::{self, MIN_SIZE, Producer};
use adverb_wire::Train;
use arbitrary::{Arbitrary, Result, Unstructured};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tempfile::TempDir;

/// What stays from input to input: a process that receives, and a socket to its bell.
struct Victim {
    link: ShmLink,
    bell: UnixDatagram,
    _dir: TempDir,
}

thread_local! {
    static VICTIM: RefCell<Option<Victim>> = const { RefCell::new(None) };
}

/// Whatever is in the ring and in the messages, the sink sees packets and trains of a possible length and the link goes on.
pub fn run(input: &[u8]) {
    VICTIM.with_borrow_mut(|victim| {
        let victim = victim.get_or_insert_with(Victim::new);
        let mut u = Unstructured::new(input);
        let _ = victim.attack(&mut u);
        victim.recover();
    });
}

impl Victim {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let place = Place::join(dir.path()).expect("an empty directory has a free slot");
        let bell = UnixDatagram::unbound().expect("a socket can be made");
        bell.connect(dir.path().join(format!("slot-{}.sock", place.slot())))
            .expect("the bell listens");
        bell.set_nonblocking(true)
            .expect("a socket can be told not to wait");
        Self {
            link: ShmLink::new(place),
            bell,
            _dir: dir,
        }
    }

    fn attack(&self, u: &mut Unstructured<'_>) -> Result<()> {
        let (mut producer, fd) = ring::create(MIN_SIZE).expect("a ring can be made");
        self.hand_over(u16::arbitrary(u)? % 1100, fd.as_fd(), u)?;
        while !u.is_empty() {
            match u8::arbitrary(u)? {
                0..128 => self.record(&mut producer, u)?,
                128..144 => {
                    let word = u32::arbitrary(u)?;
                    let at = u64::from(u16::arbitrary(u)? & 0x1FFF);
                    rustix::io::pwrite(&fd, &word.to_ne_bytes(), at)
                        .expect("a memfd can be written to");
                }
                144..150 => {
                    let len = u.arbitrary_len::<u8>()?.min(20);
                    let _ = self.bell.send(u.bytes(len)?);
                }
                150..156 => self.hand_over(u16::arbitrary(u)? % 1100, fd.as_fd(), u)?,
                156..160 => {
                    // Something that is no ring.
                    self.hand_over(1, self.bell.as_fd(), u)?;
                }
                160..168 => self.link.sweep(),
                _ => self.receive(),
            }
        }
        self.receive();
        Ok(())
    }

    fn record(&self, producer: &mut Producer, u: &mut Unstructured<'_>) -> Result<()> {
        let len = u.arbitrary_len::<u8>()?.min(80);
        let bytes = u.bytes(len)?;
        let padding = [0; 1000];
        let more = usize::from(u8::arbitrary(u)?) * 4;
        // A ring that was meddled with refuses, which is as good.
        let _ = producer.push(&[bytes, &padding[..more.min(padding.len())]]);
        Ok(())
    }

    fn receive(&self) {
        self.link.receive(64, &mut |meta, arrival| {
            let bytes = match arrival {
                Arrival::Packet(packet) => {
                    assert!(packet.len() <= MAX_PACKET + 36);
                    packet.to_vec()
                }
                Arrival::Train { head, payload } => {
                    assert!(head.len() <= 124 && payload.len() < MIN_SIZE as usize / 4);
                    let _ = Train::parse(head, payload.len() as u32);
                    let mut bytes = vec![0; payload.len()];
                    payload.copy(0, &mut bytes);
                    bytes
                }
            };
            std::hint::black_box((meta, bytes.iter().fold(0u8, |sum, byte| sum ^ byte)));
        });
    }

    fn hand_over(&self, slot: u16, fd: BorrowedFd<'_>, u: &mut Unstructured<'_>) -> Result<()> {
        let mut message = *b"avr2\0\0";
        message[4..].copy_from_slice(&slot.to_le_bytes());
        if u.ratio(1, 32)? {
            message[usize::from(u8::arbitrary(u)?) % 6] ^= 1;
        }
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let _ = sendmsg(
            &self.bell,
            &[IoSlice::new(&message)],
            &mut control,
            SendFlags::DONTWAIT,
        );
        let _ = self.link.drain_bell();
        Ok(())
    }

    /// The next input finds no rings of this one.
    fn recover(&self) {
        let _ = self.link.drain_bell();
        for _ in 0..4 {
            self.receive();
        }
        self.link.sweep();
    }
}

//! How a ring gets from its maker to its reader: through the reader's socket, and again until the reader says that he has it.
//!
//! A reader without a free descriptor loses the ring and does not know it, so it is the maker who asks again: when he next
//! has something to say, with pauses that double. What he has pushed meanwhile waits in the ring.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg_addr};

use super::rope::Rope;
use crate::qpn::SLOT_MAX;

/// What a message with a ring begins with; the version of the record format is part of it.
const RING: [u8; 4] = *b"avr2";
/// What the answer to it begins with.
const TAKEN: [u8; 4] = *b"avt1";
/// The longest message there is.
pub(super) const MESSAGE_MAX: usize = 16;

/// A ring is offered again after this, and then after twice as long, up to the longest pause.
const FIRST_PAUSE_NS: u64 = 2_000_000;
const LONGEST_PAUSE_NS: u64 = 1_000_000_000;

/// How long a first offer waits for room in the reader's socket.
const FIRST_OFFER_TRIES: u32 = 100;
const FIRST_OFFER_PAUSE: Duration = Duration::from_millis(1);

/// A message of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// The process at this slot has made a ring for us; its descriptor comes along.
    Ring { from: u16 },
    /// The process at this slot has taken the ring whose memory has this inode.
    Taken { by: u16, inode: u64 },
}

impl Message {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let slot = |bytes: &[u8]| {
            let slot = u16::from_le_bytes(bytes.try_into().ok()?);
            (1..=SLOT_MAX).contains(&slot).then_some(slot)
        };
        if let Some(rest) = bytes.strip_prefix(&RING) {
            return Some(Self::Ring { from: slot(rest)? });
        }
        let (by, inode) = bytes.strip_prefix(&TAKEN)?.split_at_checked(2)?;
        Some(Self::Taken {
            by: slot(by)?,
            inode: u64::from_le_bytes(inode.try_into().ok()?),
        })
    }

    /// The bytes, and how many of them count.
    fn write(self) -> ([u8; MESSAGE_MAX], usize) {
        let mut bytes = [0; MESSAGE_MAX];
        match self {
            Self::Ring { from } => {
                bytes[..4].copy_from_slice(&RING);
                bytes[4..6].copy_from_slice(&from.to_le_bytes());
                (bytes, 6)
            }
            Self::Taken { by, inode } => {
                bytes[..4].copy_from_slice(&TAKEN);
                bytes[4..6].copy_from_slice(&by.to_le_bytes());
                bytes[6..14].copy_from_slice(&inode.to_le_bytes());
                (bytes, 14)
            }
        }
    }
}

/// Tells the maker of a ring that it has arrived. If his socket is full he offers it again, and hears it then.
pub(super) fn tell_taken(rope: &Rope, by: u16, inode: u64) {
    let (bytes, len) = Message::Taken { by, inode }.write();
    let _ = rope.say(&bytes[..len]);
}

/// What tells one ring from all others.
pub(super) fn inode_of(ring: &OwnedFd) -> io::Result<u64> {
    Ok(File::from(ring.try_clone()?).metadata()?.ino())
}

/// A ring that its reader has not taken yet.
#[derive(Debug)]
pub(super) struct Offer {
    ring: OwnedFd,
    inode: u64,
    /// Not before this, in nanoseconds; 0 before the first.
    again_at_ns: u64,
    pause_ns: u64,
}

impl Offer {
    pub(super) fn new(ring: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            inode: inode_of(&ring)?,
            ring,
            again_at_ns: 0,
            pause_ns: FIRST_PAUSE_NS,
        })
    }

    pub(super) fn is_of(&self, inode: u64) -> bool {
        self.inode == inode
    }

    /// The first time: waits a while for room in the reader's socket. True if it was sent.
    pub(super) fn make(&mut self, rope: &Rope, own_slot: u16) -> io::Result<bool> {
        for _ in 0..FIRST_OFFER_TRIES {
            match self.send(rope, own_slot) {
                Err(Errno::AGAIN) => std::thread::sleep(FIRST_OFFER_PAUSE),
                Err(Errno::INTR) => {}
                done => return Ok(done.map(|()| true)?),
            }
        }
        Ok(false)
    }

    /// Later: if it is time. True if it was sent.
    pub(super) fn make_again(
        &mut self,
        rope: &Rope,
        own_slot: u16,
        now_ns: u64,
    ) -> io::Result<bool> {
        if now_ns < self.again_at_ns {
            return Ok(false);
        }
        let first = self.again_at_ns == 0;
        self.again_at_ns = now_ns.saturating_add(self.pause_ns);
        if first {
            // It was made a moment ago, by somebody who has not told the time.
            return Ok(false);
        }
        self.pause_ns = (self.pause_ns * 2).min(LONGEST_PAUSE_NS);
        match self.send(rope, own_slot) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&self, rope: &Rope, own_slot: u16) -> Result<(), Errno> {
        let (bytes, len) = Message::Ring { from: own_slot }.write();
        let fds = [self.ring.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg_addr(
            rope.socket(),
            rope.address(),
            &[IoSlice::new(&bytes[..len])],
            &mut control,
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written_and_nothing_else_is_one() {
        let taken = Message::Taken {
            by: 1023,
            inode: u64::MAX - 5,
        };
        for message in [Message::Ring { from: 7 }, taken] {
            let (bytes, len) = message.write();
            assert_eq!(Message::parse(&bytes[..len]), Some(message));
            for cut in 0..len {
                assert_eq!(Message::parse(&bytes[..cut]), None);
            }
        }
        assert_eq!(Message::parse(b"avr2\0\0"), None, "there is no slot 0");
        assert_eq!(Message::parse(b"!"), None);
    }
}

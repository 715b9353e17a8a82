//! The opcodes that exist and what each one carries (specification chapter 9.2).

use bitflags::bitflags;

/// The transport service: the top three bits of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    Rc = 0x00,
    Uc = 0x20,
    Ud = 0x60,
    Xrc = 0xA0,
}

/// The operation: the low five bits of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImm = 0x03,
    SendOnly = 0x04,
    SendOnlyImm = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0A,
    WriteOnlyImm = 0x0B,
    ReadRequest = 0x0C,
    ReadResponseFirst = 0x0D,
    ReadResponseMiddle = 0x0E,
    ReadResponseLast = 0x0F,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInv = 0x16,
    SendOnlyInv = 0x17,
    Flush = 0x1C,
    AtomicWrite = 0x1D,
}

/// What the first byte of a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// A packet of a queue pair. [`Opcode::is_defined`] tells the combinations that exist.
    Roce(Transport, Operation),
    /// Congestion notification.
    Cnp,
}

bitflags! {
    /// The headers that follow the BTH, in the order in which they follow it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Headers: u16 {
        const XRCETH = 1 << 0;
        const DETH = 1 << 1;
        const FETH = 1 << 2;
        const RETH = 1 << 3;
        const ATOMIC_ETH = 1 << 4;
        const AETH = 1 << 5;
        const ATOMIC_ACK_ETH = 1 << 6;
        const IMM_DT = 1 << 7;
        const IETH = 1 << 8;
        /// The 16 reserved bytes of a congestion notification.
        const CNP_RESERVED = 1 << 9;
    }
}

impl Headers {
    /// Bytes that these headers take together, the BTH not counted.
    #[must_use]
    pub const fn size(self) -> usize {
        let sizes = [4, 8, 4, 16, 28, 4, 8, 4, 4, 16];
        let mut sum = 0;
        let mut bit = 0;
        while bit < sizes.len() {
            if self.bits() & (1 << bit) != 0 {
                sum += sizes[bit];
            }
            bit += 1;
        }
        sum
    }
}

impl Transport {
    const ALL: [Self; 4] = [Self::Rc, Self::Uc, Self::Ud, Self::Xrc];

    /// RC and XRC acknowledge what they receive; UC and UD do not.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc)
    }

    /// Whether this transport has the operation at all.
    #[must_use]
    pub const fn has(self, operation: Operation) -> bool {
        match self {
            Self::Rc | Self::Xrc => true,
            Self::Uc => operation as u8 <= Operation::WriteOnlyImm as u8,
            Self::Ud => matches!(operation, Operation::SendOnly | Operation::SendOnlyImm),
        }
    }
}

impl Operation {
    const ALL: [Self; 25] = [
        Self::SendFirst,
        Self::SendMiddle,
        Self::SendLast,
        Self::SendLastImm,
        Self::SendOnly,
        Self::SendOnlyImm,
        Self::WriteFirst,
        Self::WriteMiddle,
        Self::WriteLast,
        Self::WriteLastImm,
        Self::WriteOnly,
        Self::WriteOnlyImm,
        Self::ReadRequest,
        Self::ReadResponseFirst,
        Self::ReadResponseMiddle,
        Self::ReadResponseLast,
        Self::ReadResponseOnly,
        Self::Acknowledge,
        Self::AtomicAcknowledge,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::SendLastInv,
        Self::SendOnlyInv,
        Self::Flush,
        Self::AtomicWrite,
    ];

    /// A FIRST packet of a message of several packets.
    #[must_use]
    pub const fn is_first(self) -> bool {
        matches!(
            self,
            Self::SendFirst | Self::WriteFirst | Self::ReadResponseFirst
        )
    }

    #[must_use]
    pub const fn is_middle(self) -> bool {
        matches!(
            self,
            Self::SendMiddle | Self::WriteMiddle | Self::ReadResponseMiddle
        )
    }

    /// A LAST packet, with or without immediate or invalidation.
    #[must_use]
    pub const fn is_last(self) -> bool {
        matches!(
            self,
            Self::SendLast
                | Self::SendLastImm
                | Self::SendLastInv
                | Self::WriteLast
                | Self::WriteLastImm
                | Self::ReadResponseLast
        )
    }

    /// A message that is one packet: the ONLY ones, and the operations that never have more.
    #[must_use]
    pub const fn is_only(self) -> bool {
        !self.is_first() && !self.is_middle() && !self.is_last()
    }

    #[must_use]
    pub const fn starts_message(self) -> bool {
        self.is_first() || self.is_only()
    }

    #[must_use]
    pub const fn ends_message(self) -> bool {
        self.is_last() || self.is_only()
    }

    #[must_use]
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            Self::SendFirst
                | Self::SendMiddle
                | Self::SendLast
                | Self::SendLastImm
                | Self::SendLastInv
                | Self::SendOnly
                | Self::SendOnlyImm
                | Self::SendOnlyInv
        )
    }

    /// A packet of an RDMA WRITE; ATOMIC WRITE is not one.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            Self::WriteFirst
                | Self::WriteMiddle
                | Self::WriteLast
                | Self::WriteLastImm
                | Self::WriteOnly
                | Self::WriteOnlyImm
        )
    }

    /// COMPARE_SWAP or FETCH_ADD.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    #[must_use]
    pub const fn is_read_response(self) -> bool {
        matches!(
            self,
            Self::ReadResponseFirst
                | Self::ReadResponseMiddle
                | Self::ReadResponseLast
                | Self::ReadResponseOnly
        )
    }

    /// Travels from responder to requester.
    #[must_use]
    pub const fn is_response(self) -> bool {
        self.is_read_response() || matches!(self, Self::Acknowledge | Self::AtomicAcknowledge)
    }

    #[must_use]
    pub const fn is_request(self) -> bool {
        !self.is_response()
    }

    /// Takes an entry off the receive queue: a SEND with its first packet, a WRITE with immediate
    /// with its last.
    #[must_use]
    pub const fn takes_receive(self) -> bool {
        self.is_send() && self.starts_message() || self.is_write() && self.has_imm()
    }

    #[must_use]
    pub const fn has_reth(self) -> bool {
        self.headers().contains(Headers::RETH)
    }

    #[must_use]
    pub const fn has_atomic_eth(self) -> bool {
        self.headers().contains(Headers::ATOMIC_ETH)
    }

    #[must_use]
    pub const fn has_aeth(self) -> bool {
        self.headers().contains(Headers::AETH)
    }

    #[must_use]
    pub const fn has_atomic_ack_eth(self) -> bool {
        self.headers().contains(Headers::ATOMIC_ACK_ETH)
    }

    #[must_use]
    pub const fn has_imm(self) -> bool {
        self.headers().contains(Headers::IMM_DT)
    }

    #[must_use]
    pub const fn has_ieth(self) -> bool {
        self.headers().contains(Headers::IETH)
    }

    #[must_use]
    pub const fn has_feth(self) -> bool {
        self.headers().contains(Headers::FETH)
    }

    /// The headers this operation has on every transport that offers it.
    #[must_use]
    pub const fn headers(self) -> Headers {
        match self {
            Self::SendFirst
            | Self::SendMiddle
            | Self::SendLast
            | Self::SendOnly
            | Self::WriteMiddle
            | Self::WriteLast
            | Self::ReadResponseMiddle => Headers::empty(),
            Self::SendLastImm | Self::SendOnlyImm | Self::WriteLastImm => Headers::IMM_DT,
            Self::WriteFirst | Self::WriteOnly | Self::ReadRequest | Self::AtomicWrite => {
                Headers::RETH
            }
            Self::WriteOnlyImm => Headers::RETH.union(Headers::IMM_DT),
            Self::ReadResponseFirst
            | Self::ReadResponseLast
            | Self::ReadResponseOnly
            | Self::Acknowledge => Headers::AETH,
            Self::AtomicAcknowledge => Headers::AETH.union(Headers::ATOMIC_ACK_ETH),
            Self::CompareSwap | Self::FetchAdd => Headers::ATOMIC_ETH,
            Self::SendLastInv | Self::SendOnlyInv => Headers::IETH,
            Self::Flush => Headers::FETH.union(Headers::RETH),
        }
    }

    /// Whether a payload of `len` bytes is legal for this operation on a path of `pmtu` bytes.
    ///
    /// Parsing does not ask, because what a violation means differs: RC answers it with a NAK, UC
    /// drops the message.
    #[must_use]
    pub const fn payload_fits(self, len: usize, pmtu: usize) -> bool {
        match self {
            Self::ReadRequest
            | Self::Acknowledge
            | Self::AtomicAcknowledge
            | Self::CompareSwap
            | Self::FetchAdd
            | Self::Flush => len == 0,
            Self::AtomicWrite => len == 8,
            _ if self.is_first() || self.is_middle() => len == pmtu,
            _ if self.is_last() => 1 <= len && len <= pmtu,
            _ => len <= pmtu,
        }
    }
}

impl Opcode {
    /// The code of a congestion notification.
    const CNP: u8 = 0x81;

    #[inline]
    #[must_use]
    pub const fn from_u8(code: u8) -> Option<Self> {
        KNOWN[code as usize]
    }

    #[inline]
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Roce(transport, operation) => transport as u8 | operation as u8,
            Self::Cnp => Self::CNP,
        }
    }

    /// Whether the combination exists: UC has no READ, UD has nothing but SEND ONLY.
    #[must_use]
    pub const fn is_defined(self) -> bool {
        match self {
            Self::Roce(transport, operation) => transport.has(operation),
            Self::Cnp => true,
        }
    }

    /// Every opcode that exists, in the order of their codes.
    pub fn all() -> impl Iterator<Item = Self> {
        KNOWN.iter().copied().flatten()
    }

    #[must_use]
    pub const fn operation(self) -> Option<Operation> {
        match self {
            Self::Roce(_, operation) => Some(operation),
            Self::Cnp => None,
        }
    }

    #[must_use]
    pub const fn transport(self) -> Option<Transport> {
        match self {
            Self::Roce(transport, _) => Some(transport),
            Self::Cnp => None,
        }
    }

    /// The headers between the BTH and the payload.
    #[inline]
    #[must_use]
    pub const fn headers(self) -> Headers {
        LAYOUT[self.to_u8() as usize].headers
    }

    /// Bytes before the payload, the BTH included.
    #[inline]
    #[must_use]
    pub const fn header_len(self) -> usize {
        LAYOUT[self.to_u8() as usize].len as usize
    }

    const fn find_headers(self) -> Headers {
        let Self::Roce(transport, operation) = self else {
            return Headers::CNP_RESERVED;
        };
        let own = match transport {
            // Responses find the requester's queue pair by DestQP; only requests name an SRQ.
            Transport::Xrc if operation.is_request() => Headers::XRCETH,
            Transport::Ud => Headers::DETH,
            Transport::Rc | Transport::Uc | Transport::Xrc => Headers::empty(),
        };
        own.union(operation.headers())
    }
}

#[derive(Clone, Copy)]
struct Layout {
    headers: Headers,
    len: u8,
}

/// By code: the opcode, where there is one.
const KNOWN: [Option<Opcode>; 256] = {
    let mut table = [None; 256];
    let mut t = 0;
    while t < Transport::ALL.len() {
        let mut o = 0;
        while o < Operation::ALL.len() {
            let opcode = Opcode::Roce(Transport::ALL[t], Operation::ALL[o]);
            if opcode.is_defined() {
                table[opcode.to_u8() as usize] = Some(opcode);
            }
            o += 1;
        }
        t += 1;
    }
    table[Opcode::CNP as usize] = Some(Opcode::Cnp);
    table
};

/// By code: the headers. A static, so that the data path looks up instead of deciding.
static LAYOUT: [Layout; 256] = {
    let mut table = [Layout {
        headers: Headers::empty(),
        len: BTH_LEN,
    }; 256];
    let mut code = 0;
    while code < table.len() {
        if let Some(opcode) = KNOWN[code] {
            let headers = opcode.find_headers();
            table[code] = Layout {
                headers,
                len: BTH_LEN + headers.size() as u8,
            };
        }
        code += 1;
    }
    table
};

const BTH_LEN: u8 = 12;

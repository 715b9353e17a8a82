//! Asynchronous events of a context: what happens beside completions.

use adverb_engine::QpEvent;

/// The kinds of event; the numbers are those of the verbs interface.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncKind {
    CqErr = 0,
    QpFatal = 1,
    QpReqErr = 2,
    QpAccessErr = 3,
    CommEst = 4,
    SqDrained = 5,
    DeviceFatal = 8,
    PortActive = 9,
    PortErr = 10,
    SrqLimitReached = 15,
    QpLastWqeReached = 16,
}

/// What an event is about. The number is the token the object was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    Cq(u64),
    Qp(u64),
    Srq(u64),
    Device,
}

/// An event as [`Context::next_async_event`](crate::Context::next_async_event) returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    pub kind: AsyncKind,
    pub source: Source,
}

impl From<QpEvent> for AsyncKind {
    fn from(event: QpEvent) -> Self {
        match event {
            QpEvent::Fatal => Self::QpFatal,
            QpEvent::RequestError => Self::QpReqErr,
            QpEvent::AccessError => Self::QpAccessErr,
            QpEvent::CommEst => Self::CommEst,
            QpEvent::SqDrained => Self::SqDrained,
            QpEvent::LastWqeReached => Self::QpLastWqeReached,
        }
    }
}

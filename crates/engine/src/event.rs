//! What a queue pair reports beside completions.

/// An asynchronous event of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpEvent {
    /// Forced into the error state for a reason no completion can express.
    Fatal,
    /// The peer sent an invalid or unsupported request and no receive entry was there to report it.
    RequestError,
    /// The peer violated a key, an alignment, a length or the read limit.
    AccessError,
    /// The first valid request while in RTR.
    CommEst,
    /// All send work that had started is done, as asked for when the queue was stopped.
    SqDrained,
    /// Nothing of this queue pair will appear on the receive CQ after the completions before this.
    LastWqeReached,
}

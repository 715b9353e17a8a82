//! Who waits for what. Nothing here polls or sleeps; wakers are collected, to be woken after the lock is gone.

use std::collections::VecDeque;
use std::task::Waker;

use super::line::{Left, Line, Place};
use crate::by_number::ByNumber;
use crate::wc::{Completion, OpId, OpKind};

/// The mailbox of what nobody waits for in particular.
pub(super) const REST: u64 = 0;

pub(super) struct Table {
    operations: ByNumber<OpId, Entry>,
    /// Operations with a waker.
    asleep: usize,
    mailboxes: ByNumber<u64, Mailbox>,
    next_mailbox: u64,
    /// By number of the queue pair.
    routes: ByNumber<u32, Route>,
    pub(super) after: After,
}

/// What is left to do when the lock is gone.
#[derive(Default)]
pub(super) struct After {
    pub(super) wakes: Vec<Waker>,
    /// What nobody wants any more: freeing it may deregister memory.
    pub(super) dropped: Vec<Completion>,
    /// Wakers that nobody needs: dropping the last one of a task may drop the task, whose futures come back here.
    pub(super) discarded: Vec<Waker>,
}

impl After {
    pub(super) fn is_empty(&self) -> bool {
        self.wakes.is_empty() && self.dropped.is_empty() && self.discarded.is_empty()
    }

    pub(super) fn run(&mut self) {
        self.dropped.clear();
        self.discarded.clear();
        self.wakes.drain(..).for_each(Waker::wake);
    }
}

/// An operation that a future has posted.
struct Entry {
    qp_num: u32,
    state: State,
}

enum State {
    Waiting(Option<Waker>),
    Done(Completion),
    /// Its future was dropped.
    Detached,
}

#[derive(Default)]
struct Mailbox {
    messages: VecDeque<Completion>,
    line: Line,
}

struct Route {
    mailbox: u64,
    /// Operations that futures have posted and that are not over.
    in_flight: usize,
    /// How often that became none.
    idle: u64,
    /// Futures that found the send queue full.
    room: Line,
}

/// Whose turn it is to post.
pub(super) enum Turn {
    Ours,
    /// The first in line is going to be called.
    Others,
    /// The first in line was called, since nothing is in flight any more, for the so many-th time. Whoever is polled again
    /// and still finds that need not wait for one that is not.
    Idle(u64),
}

impl Table {
    pub(super) fn new() -> Self {
        let mut mailboxes = ByNumber::default();
        mailboxes.insert(REST, Mailbox::default());
        Self {
            operations: ByNumber::default(),
            asleep: 0,
            mailboxes,
            next_mailbox: REST + 1,
            routes: ByNumber::default(),
            after: After::default(),
        }
    }

    /// Hands a completion to whoever it is for.
    pub(super) fn hand_out(&mut self, completion: Completion) {
        let route = self.routes.get_mut(&completion.qp_num);
        if completion.kind == OpKind::Recv {
            let mailbox = route.map_or(REST, |route| route.mailbox);
            return self.deliver(mailbox, completion);
        }
        let entry = self.operations.get_mut(&completion.id);
        if let Some(route) = route {
            route.in_flight -= usize::from(entry.is_some());
            // One whose turn it is and who is not polled must not keep the others from a queue that is empty.
            match route.in_flight {
                0 => {
                    route.idle += 1;
                    self.after.wakes.extend(route.room.all().cloned());
                }
                _ => self.after.wakes.extend(route.room.first().cloned()),
            }
        }
        let Some(entry) = entry else {
            return self.deliver(REST, completion);
        };
        match &mut entry.state {
            State::Waiting(waker) => {
                if let Some(waker) = waker.take() {
                    self.asleep -= 1;
                    self.after.wakes.push(waker);
                }
                entry.state = State::Done(completion);
            }
            State::Detached | State::Done(_) => {
                self.operations.remove(&completion.id);
                self.after.dropped.push(completion);
            }
        }
    }

    fn deliver(&mut self, mailbox: u64, completion: Completion) {
        match self.mailboxes.get_mut(&mailbox) {
            Some(mailbox) => {
                mailbox.messages.push_back(completion);
                self.after.wakes.extend(mailbox.line.call());
            }
            None => self.after.dropped.push(completion),
        }
    }

    /// A future has posted this operation.
    pub(super) fn expect(&mut self, id: OpId, qp_num: u32) {
        if let Some(route) = self.routes.get_mut(&qp_num) {
            route.in_flight += 1;
        }
        let state = State::Waiting(None);
        self.operations.insert(id, Entry { qp_num, state });
    }

    /// The operation's completion, once.
    pub(super) fn take(&mut self, id: OpId) -> Option<Completion> {
        match self.operations.get_mut(&id)?.state {
            State::Done(_) => match self.operations.remove(&id)?.state {
                State::Done(completion) => Some(completion),
                State::Waiting(_) | State::Detached => None,
            },
            State::Waiting(ref mut waker) => {
                // Its task is awake.
                self.asleep -= usize::from(waker.is_some());
                self.after.discarded.extend(waker.take());
                None
            }
            State::Detached => None,
        }
    }

    /// Wakes this task when the operation is over.
    pub(super) fn wake_for(&mut self, id: OpId, waker: &Waker) {
        if let Some(Entry {
            state: State::Waiting(known),
            ..
        }) = self.operations.get_mut(&id)
        {
            self.asleep += usize::from(known.is_none());
            self.after.discarded.extend(known.replace(waker.clone()));
        }
    }

    /// Nobody waits for the operation any more.
    pub(super) fn detach(&mut self, id: OpId) {
        let Some(entry) = self.operations.get_mut(&id) else {
            return;
        };
        match std::mem::replace(&mut entry.state, State::Detached) {
            State::Waiting(waker) => {
                self.asleep -= usize::from(waker.is_some());
                self.after.discarded.extend(waker);
            }
            State::Done(completion) => {
                self.operations.remove(&id);
                self.after.dropped.push(completion);
            }
            State::Detached => {}
        }
    }

    pub(super) fn open_mailbox(&mut self) -> u64 {
        let mailbox = self.next_mailbox;
        self.next_mailbox += 1;
        self.mailboxes.insert(mailbox, Mailbox::default());
        mailbox
    }

    pub(super) fn close_mailbox(&mut self, mailbox: u64) {
        if let Some(mut mailbox) = self.mailboxes.remove(&mailbox) {
            self.after.dropped.extend(mailbox.messages);
            self.after.discarded.extend(mailbox.line.close());
        }
    }

    /// The next message; its receiver gives its place up then.
    pub(super) fn receive(&mut self, mailbox: u64, place: &mut Place) -> Option<Completion> {
        let message = self.mailboxes.get_mut(&mailbox)?.messages.pop_front()?;
        self.stop_receiving(mailbox, place);
        Some(message)
    }

    /// Wakes this task when there may be a message for it.
    pub(super) fn wake_for_message(&mut self, mailbox: u64, place: &mut Place, waker: &Waker) {
        if let Some(mailbox) = self.mailboxes.get_mut(&mailbox) {
            self.after
                .discarded
                .extend(mailbox.line.enter(place, waker));
        }
    }

    /// The message that it was woken for is somebody else's now.
    pub(super) fn stop_receiving(&mut self, mailbox: u64, place: &mut Place) {
        let Some(mailbox) = self.mailboxes.get_mut(&mailbox) else {
            return;
        };
        match mailbox.line.leave(place) {
            Left::Called if !mailbox.messages.is_empty() => {
                self.after.wakes.extend(mailbox.line.call());
            }
            Left::InLine(waker) => self.after.discarded.push(waker),
            Left::Called | Left::Nothing => {}
        }
    }

    /// What this queue pair receives goes to this mailbox.
    pub(super) fn open_route(&mut self, qp_num: u32, mailbox: u64) {
        let route = Route {
            mailbox,
            in_flight: 0,
            idle: 0,
            room: Line::default(),
        };
        self.routes.insert(qp_num, route);
    }

    /// The queue pair is no more, and nothing of its is going to complete.
    pub(super) fn close_route(&mut self, qp_num: u32) {
        if let Some(mut route) = self.routes.remove(&qp_num) {
            self.after.discarded.extend(route.room.close());
        }
        let gone = self
            .operations
            .extract_if(|_, entry| entry.qp_num == qp_num);
        for (_, entry) in gone {
            match entry.state {
                State::Waiting(waker) => {
                    self.asleep -= usize::from(waker.is_some());
                    self.after.discarded.extend(waker);
                }
                State::Done(completion) => self.after.dropped.push(completion),
                State::Detached => {}
            }
        }
    }

    /// Whether it is this future's turn to post, so that those polled together post in that order.
    pub(super) fn turn(&self, qp_num: u32, place: &Place) -> Turn {
        match self.routes.get(&qp_num) {
            Some(route) if !route.room.is_turn_of(place) => match route.in_flight {
                0 => Turn::Idle(route.idle),
                _ => Turn::Others,
            },
            _ => Turn::Ours,
        }
    }

    /// Wakes this task when it is its turn, and there may be room in the send queue.
    pub(super) fn wake_for_room(&mut self, qp_num: u32, place: &mut Place, waker: &Waker) {
        if let Some(route) = self.routes.get_mut(&qp_num) {
            self.after.discarded.extend(route.room.enter(place, waker));
        }
    }

    /// It has posted or gives up; there may be room for the next, too.
    pub(super) fn stop_waiting_for_room(&mut self, qp_num: u32, place: &mut Place) {
        let Some(route) = self.routes.get_mut(&qp_num) else {
            return;
        };
        if let Left::InLine(waker) = route.room.leave(place) {
            self.after.discarded.push(waker);
            self.after.wakes.extend(route.room.first().cloned());
        }
    }

    /// Whether a task sleeps that a completion may have to wake.
    pub(super) fn anybody_sleeps(&self) -> bool {
        self.asleep > 0
            || self.mailboxes.values().any(|m| !m.line.is_empty())
            || self.routes.values().any(|r| !r.room.is_empty())
    }

    /// Each task looks for itself.
    pub(super) fn wake_all(&mut self) {
        let operations = self
            .operations
            .values()
            .filter_map(|entry| match &entry.state {
                State::Waiting(waker) => waker.clone(),
                State::Done(_) | State::Detached => None,
            });
        self.after.wakes.extend(operations);
        let lines = self.mailboxes.values().map(|m| &m.line);
        let lines = lines.chain(self.routes.values().map(|r| &r.room));
        self.after.wakes.extend(lines.flat_map(Line::all).cloned());
    }

    /// All that nobody has taken.
    pub(super) fn into_left(self) -> impl Iterator<Item = Completion> {
        let done = self.operations.into_values().filter_map(|e| match e.state {
            State::Done(completion) => Some(completion),
            State::Waiting(_) | State::Detached => None,
        });
        let messages = self.mailboxes.into_values().flat_map(|m| m.messages);
        done.chain(messages)
    }
}

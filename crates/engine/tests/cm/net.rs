//! Two hosts and what is between them. A host does with messages what the NIC does: finds the machine, or answers
//! without one; its user does what its [`Plan`] says.

use adverb_engine::Instant;
use adverb_engine::cm::{
    Connection, ConnectionEvent, ConnectionState, MAX_CM_RETRIES, RESPONSE_TIMEOUT, ack_timeout,
    answer_stray, refuse,
};
use adverb_wire::cm::{Mad, Message, Path, RejReason, Rep, Req, ServiceId, padded};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;
/// Who asks, and who is asked.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
const QPN: [u32; 2] = [0x11, 0x22];

/// SplitMix64: all the chance there is.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Whether something happens that happens so often in a thousand.
    pub(crate) fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Accept,
    Reject,
    Establish,
    Notify,
    Disconnect,
    Close,
}

/// What a user does when it is told something, and after how many nanoseconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Plan {
    pub(crate) on_request: Option<(Act, u64)>,
    pub(crate) on_response: Option<(Act, u64)>,
    pub(crate) on_established: Option<(Act, u64)>,
    pub(crate) on_disconnected: Option<(Act, u64)>,
}

impl Plan {
    /// Wants every connection, and gives it up when the peer does.
    pub(crate) fn willing() -> Self {
        Self {
            on_request: Some((Act::Accept, MS)),
            on_response: Some((Act::Establish, MS)),
            on_established: None,
            on_disconnected: Some((Act::Disconnect, MS)),
        }
    }
}

/// A machine and what its user has been told.
pub(crate) struct Entry {
    pub(crate) machine: Connection,
    pub(crate) told: Vec<ConnectionEvent>,
}

pub(crate) struct Host {
    pub(crate) guid: u64,
    pub(crate) listens: bool,
    pub(crate) plan: Plan,
    pub(crate) entries: Vec<Entry>,
    todo: Vec<(Instant, u32, Act)>,
    next_id: u32,
}

/// Decides for each message after how many nanoseconds each copy arrives; none: it is lost.
pub(crate) type Weather = Box<dyn FnMut(usize, &Mad) -> Vec<u64>>;

pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) hosts: [Host; 2],
    flying: Vec<(Instant, usize, Mad)>,
    pub(crate) weather: Weather,
    /// The names of all messages sent, with their senders.
    pub(crate) said: Vec<(usize, &'static str)>,
}

impl Net {
    pub(crate) fn new(plans: [Plan; 2], weather: Weather) -> Self {
        let host = |index: usize| Host {
            guid: 0xA0 + index as u64,
            listens: index == B,
            plan: plans[index],
            entries: Vec::new(),
            todo: Vec::new(),
            next_id: 1000 * (index as u32 + 1),
        };
        Self {
            now: Instant::ZERO,
            hosts: [host(A), host(B)],
            flying: Vec::new(),
            weather,
            said: Vec::new(),
        }
    }

    /// Everything arrives, a millisecond later.
    pub(crate) fn calm(plans: [Plan; 2]) -> Self {
        Self::new(plans, Box::new(|_, _| vec![MS]))
    }

    /// The first `count` messages of this name are lost.
    pub(crate) fn losing(plans: [Plan; 2], name: &'static str, count: usize) -> Self {
        let mut left = count;
        let weather = move |_: usize, mad: &Mad| {
            if mad.message.name() != name || left == 0 {
                return vec![MS];
            }
            left -= 1;
            vec![]
        };
        Self::new(plans, Box::new(weather))
    }

    /// Each message of this name arrives a second time, so much later.
    pub(crate) fn repeating(plans: [Plan; 2], name: &'static str, later: u64) -> Self {
        let weather = move |_: usize, mad: &Mad| {
            if mad.message.name() == name {
                vec![MS, MS + later]
            } else {
                vec![MS]
            }
        };
        Self::new(plans, Box::new(weather))
    }

    /// Host A asks host B for a connection; gives its ID.
    pub(crate) fn connect(&mut self) -> u32 {
        self.connect_with(request())
    }

    pub(crate) fn connect_with(&mut self, req: Req) -> u32 {
        let host = &mut self.hosts[A];
        let id = host.fresh_id();
        let req = Req {
            ca_guid: host.guid,
            ..req
        };
        host.add(Connection::connect(self.now, id, u64::from(id) << 8, req));
        self.pump();
        id
    }

    pub(crate) fn act(&mut self, host: usize, id: u32, act: Act) {
        let (now, guid) = (self.now, self.hosts[host].guid);
        let entry = self.hosts[host].entry(id).expect("the machine exists");
        let machine = &mut entry.machine;
        let before = machine.state();
        let done = match act {
            Act::Accept => machine.accept(
                now,
                Rep {
                    qpn: QPN[host],
                    ca_guid: guid,
                    private: padded(b"yes").expect("it fits"),
                    ..Rep::default()
                },
            ),
            Act::Reject => machine.reject(
                now,
                RejReason::CONSUMER_DEFINED,
                padded(b"no").expect("it fits"),
            ),
            Act::Establish => machine.established_by_user(now),
            Act::Notify => machine.notify_established(now),
            Act::Disconnect => machine.disconnect(now, padded(b"bye").expect("it fits")),
            Act::Close => {
                machine.close(now);
                Ok(())
            }
        };
        // A refused call changes nothing; that a user comes too late is no mistake of the machine.
        if done.is_err() {
            assert_eq!(machine.state(), before);
        } else if act == Act::Establish {
            self.hosts[host].react(now, id, |plan| plan.on_established);
        }
        self.pump();
    }

    /// The process on the other side dies.
    pub(crate) fn peer_gone(&mut self, host: usize, id: u32) {
        let entry = self.hosts[host].entry(id).expect("the machine exists");
        entry.machine.peer_gone(self.now);
        self.pump();
    }

    /// Sends what is to be sent, tells what is to be told, forgets what is over.
    fn pump(&mut self) {
        for from in [A, B] {
            for index in 0..self.hosts[from].entries.len() {
                while let Some(mad) = self.hosts[from].entries[index]
                    .machine
                    .poll_transmit(self.now)
                {
                    self.send(from, mad);
                }
                let host = &mut self.hosts[from];
                while let Some(event) = host.entries[index].machine.poll_event() {
                    host.entries[index].told.push(event);
                    let id = host.entries[index].machine.local_id();
                    host.react(self.now, id, |plan| match event {
                        ConnectionEvent::Response(_) => plan.on_response,
                        ConnectionEvent::Established { .. } => plan.on_established,
                        ConnectionEvent::Disconnected => plan.on_disconnected,
                        _ => None,
                    });
                }
                let machine = &host.entries[index].machine;
                if machine.state() == ConnectionState::Over {
                    assert!(machine.is_over(), "drained, so nothing is left");
                    assert_eq!(machine.poll_timeout(), None);
                }
            }
        }
    }

    fn send(&mut self, from: usize, mad: Mad) {
        self.said.push((from, mad.message.name()));
        // What arrives is what the bytes say.
        let arrived = Mad::parse(&mad.emit()).expect("what we emit can be parsed");
        for delay in (self.weather)(from, &mad) {
            self.flying
                .push((self.now.plus_nanos(delay), 1 - from, arrived));
        }
    }

    /// A message arrives.
    fn deliver(&mut self, to: usize, mad: Mad) {
        let now = self.now;
        let answer = self.hosts[to].receive(now, &mad);
        self.pump();
        if let Some(answer) = answer {
            self.send(to, answer);
        }
    }

    /// When something is next to happen.
    fn next(&self) -> Option<Instant> {
        let timers = self.hosts.iter().flat_map(|host| {
            let machines = host.entries.iter();
            let due = host.todo.iter().map(|(at, ..)| *at);
            machines.filter_map(|e| e.machine.poll_timeout()).chain(due)
        });
        self.flying
            .iter()
            .map(|(at, ..)| *at)
            .chain(timers)
            .min()
            .map(|at| at.max(self.now))
    }

    /// Lets time pass until nothing is left to happen.
    pub(crate) fn run(&mut self) {
        self.run_until(Instant::from_nanos(u64::MAX));
    }

    pub(crate) fn run_for(&mut self, ns: u64) {
        let until = self.now.plus_nanos(ns);
        self.run_until(until);
        self.now = until;
    }

    fn run_until(&mut self, until: Instant) {
        for _ in 0..10_000 {
            let Some(now) = self.next().filter(|&at| at <= until) else {
                return;
            };
            self.now = now;
            self.arrive();
            self.time_passes();
            self.users_act();
        }
        panic!("there is no end to it: {:?}", self.said);
    }

    fn arrive(&mut self) {
        let now = self.now;
        let (due, later) = self.flying.drain(..).partition(|(at, ..)| *at <= now);
        self.flying = later;
        let mut due: Vec<(Instant, usize, Mad)> = due;
        due.sort_by_key(|(at, ..)| *at);
        for (_, to, mad) in due {
            self.deliver(to, mad);
        }
    }

    fn time_passes(&mut self) {
        for host in &mut self.hosts {
            for entry in &mut host.entries {
                entry.machine.handle_timeout(self.now);
            }
        }
        self.pump();
    }

    fn users_act(&mut self) {
        for host in [A, B] {
            let now = self.now;
            let (due, later) = self.hosts[host]
                .todo
                .drain(..)
                .partition(|(at, ..)| *at <= now);
            self.hosts[host].todo = later;
            let due: Vec<(Instant, u32, Act)> = due;
            for (_, id, act) in due {
                self.act(host, id, act);
            }
        }
    }

    pub(crate) fn told(&self, host: usize) -> Vec<&'static str> {
        self.hosts[host]
            .entries
            .iter()
            .flat_map(|entry| entry.told.iter().map(name))
            .collect()
    }

    pub(crate) fn state(&self, host: usize) -> ConnectionState {
        self.hosts[host].entries[0].machine.state()
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.said.iter().filter(|(_, said)| *said == name).count()
    }
}

impl Host {
    fn fresh_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    fn add(&mut self, machine: Connection) {
        self.entries.push(Entry {
            machine,
            told: Vec::new(),
        });
    }

    fn entry(&mut self, id: u32) -> Option<&mut Entry> {
        self.entries
            .iter_mut()
            .find(|entry| entry.machine.local_id() == id)
    }

    fn react(&mut self, now: Instant, id: u32, planned: impl Fn(&Plan) -> Option<(Act, u64)>) {
        if let Some((act, delay)) = planned(&self.plan) {
            self.todo.push((now.plus_nanos(delay), id, act));
        }
    }

    /// The machine that a message is for. Those that are over are forgotten.
    fn find(&mut self, message: &Message) -> Option<&mut Connection> {
        let is_meant = |machine: &Connection| match message {
            Message::Req(req) => {
                !machine.is_active()
                    && machine.remote_id() == Some(req.local_id)
                    && machine.remote_guid() == Some(req.ca_guid)
            }
            Message::Rej(rej) if rej.remote_id == 0 => {
                machine.remote_id() == Some(rej.local_id)
                    && rej
                        .gives_up()
                        .is_some_and(|g| Some(g) == machine.remote_guid())
            }
            other => other.remote_id() == Some(machine.local_id()),
        };
        self.entries
            .iter_mut()
            .map(|entry| &mut entry.machine)
            .filter(|machine| !machine.is_over())
            .find(|machine| is_meant(machine))
    }

    /// Gives an answer of those that need no machine.
    fn receive(&mut self, now: Instant, mad: &Mad) -> Option<Mad> {
        if let Some(machine) = self.find(&mad.message) {
            // What is dropped is the business of those who count.
            let _ = machine.handle(now, mad);
            return None;
        }
        match &mad.message {
            Message::Req(req) if self.listens => {
                let id = self.fresh_id();
                self.add(Connection::requested(now, id, mad.tid, req));
                self.react(now, id, |plan| plan.on_request);
                None
            }
            Message::Req(_) => refuse(mad, RejReason::INVALID_SERVICE_ID),
            _ => answer_stray(mad),
        }
    }
}

pub(crate) fn request() -> Req {
    Req {
        service_id: ServiceId(0x0106_1D2F),
        qpn: QPN[A],
        remote_response_timeout: RESPONSE_TIMEOUT,
        local_response_timeout: RESPONSE_TIMEOUT,
        max_cm_retries: MAX_CM_RETRIES,
        primary: Path {
            local_lid: 0xFFFF,
            remote_lid: 0xFFFF,
            ack_timeout: ack_timeout(16, 15),
            ..Path::default()
        },
        private: padded(b"please").expect("it fits"),
        ..Req::default()
    }
}

pub(crate) fn name(event: &ConnectionEvent) -> &'static str {
    match event {
        ConnectionEvent::Response(_) => "response",
        ConnectionEvent::Established { .. } => "established",
        ConnectionEvent::Rejected { .. } => "rejected",
        ConnectionEvent::Unreachable => "unreachable",
        ConnectionEvent::Disconnected => "disconnected",
        ConnectionEvent::TimewaitExit => "timewait exit",
    }
}

//! The connection manager's machines: two hosts, a virtual clock, and a network that loses, repeats and delays.

mod connecting;
mod disconnecting;
mod disturbed;
mod lookup;
mod net;
mod strangers;

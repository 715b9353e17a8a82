//! Memory windows: keys of their own to part of a region.
//!
//! A window is bound by work on a send queue, to a range and to rights that the region need not
//! grant to peers itself. Type 1 belongs to a protection domain and is unbound by binding nothing;
//! type 2 (here: 2B) also belongs to the queue pair that bound it, and is unbound by invalidating
//! it. Each bind gives the window a new tag, so that the old key is worth nothing.

use crate::ids::{Key, PdId, QpNum};
use crate::memory::{Access, KeyError, MemAccess};
use crate::mr::{Entry, KeyTable, MrSpec, permit};
use crate::wr::MwBind;

/// The two types of the specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowType {
    One,
    Two,
}

/// A window, bound or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pd: PdId,
    kind: WindowType,
    bound: Option<Binding>,
}

/// What a bound window covers.
#[derive(Clone, Copy, Debug)]
struct Binding {
    region: Key,
    /// Range and rights as the peer sees them.
    spec: MrSpec,
    /// Where the window begins in the region.
    offset: u64,
    /// Type 2: the only queue pair that may use it.
    qp: Option<QpNum>,
}

/// Rights that a window can give. The local one is of no use to a peer, and programs that know that
/// remote writing needs it on regions ask for it here as well.
const GIVEN: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::ZERO_BASED)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

impl<T> KeyTable<T> {
    /// A window that covers nothing yet.
    pub fn insert_window(&mut self, pd: PdId, kind: WindowType) -> Result<Key, KeyError> {
        self.place(Entry::Window(Window {
            pd,
            kind,
            bound: None,
        }))
    }

    /// Ends a window, bound or not, whatever its tag is by now.
    pub fn remove_window(&mut self, window: Key) {
        if self.window(window).is_ok() {
            self.unbind(self.slot_of(window));
            self.vacate(self.slot_of(window));
        }
    }

    /// How many windows are bound to a region, which must stay as it is meanwhile.
    pub fn windows_of(&self, region: Key) -> u32 {
        match self.slot(region).and_then(|s| s.entry.as_ref()) {
            Some(Entry::Region { windows, .. }) => *windows,
            _ => 0,
        }
    }

    /// BIND_MW, asked for by a queue pair. On an error nothing has changed.
    pub fn bind(&mut self, bind: &MwBind, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        let window = *self.window(bind.window)?;
        let refuse = |why| {
            Err(KeyError::NotBindable {
                key: bind.window.0,
                why,
            })
        };
        if window.pd != pd {
            return Err(KeyError::WrongPd {
                key: bind.window.0,
                owner: window.pd.0,
                asked: pd.0,
            });
        }
        // Only the tag is the consumer's to choose; which window it is has been said already.
        let new_key = bind.window.0 & !0xff | bind.new_key.0 & 0xff;
        let two = window.kind == WindowType::Two;
        if two && window.bound.is_some() {
            return refuse("a window of type 2 must be invalidated before it is bound again");
        }
        let at = self.slot_of(bind.window);
        if bind.len == 0 {
            if two {
                return refuse("a window of type 2 cannot be bound to nothing");
            }
            self.unbind(at);
            self.slots[at].key = new_key;
            return Ok(());
        }
        let binding = self.binding(bind, &window, qp)?;
        self.unbind(at);
        if let Some(Entry::Region { windows, .. }) =
            self.slot_mut(bind.region).and_then(|s| s.entry.as_mut())
        {
            *windows += 1;
        }
        self.tied += usize::from(two);
        let slot = &mut self.slots[at];
        slot.key = new_key;
        slot.entry = Some(Entry::Window(Window {
            bound: Some(binding),
            ..window
        }));
        Ok(())
    }

    /// What a bind would make of a window, if the region allows it.
    fn binding(&self, bind: &MwBind, window: &Window, qp: QpNum) -> Result<Binding, KeyError> {
        let key = bind.region.0;
        let refuse = |why| Err(KeyError::NotBindable { key, why });
        let (region, _) = self.get(bind.region).ok_or(KeyError::Unknown { key })?;
        let unknown = bind.access.difference(GIVEN).bits();
        if unknown != 0 {
            return Err(KeyError::UnknownAccess { bits: unknown });
        }
        if !region.access.contains(Access::MW_BIND) {
            return refuse("the region was registered without MW_BIND");
        }
        if region.access.contains(Access::ZERO_BASED) {
            return refuse("the region is zero based");
        }
        let changes = bind
            .access
            .intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if changes && !region.access.contains(Access::LOCAL_WRITE) {
            return refuse("the window lets peers change a region without LOCAL_WRITE");
        }
        let zero_based = bind.access.contains(Access::ZERO_BASED);
        let two = window.kind == WindowType::Two;
        if zero_based && !two {
            return refuse("windows of type 1 cannot be zero based");
        }
        let offset = permit(
            region,
            &MemAccess {
                key: bind.region,
                pd: window.pd,
                qp,
                va: bind.addr,
                len: bind.len,
                need: Access::empty(),
                remote: false,
            },
        )?;
        Ok(Binding {
            region: bind.region,
            spec: MrSpec {
                pd: window.pd,
                iova: if zero_based { 0 } else { bind.addr },
                len: bind.len,
                access: bind.access.difference(Access::LOCAL_WRITE),
            },
            offset,
            qp: two.then_some(qp),
        })
    }

    /// LOCAL_INV and SEND_WITH_INV. Regions that an application registered cannot be invalidated.
    pub fn invalidate(&mut self, key: Key, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        let not_ours = Err(KeyError::NotInvalidatable { key: key.0 });
        let owner = match self.slot(key).and_then(|s| s.entry.as_ref()) {
            None => return Err(KeyError::Unknown { key: key.0 }),
            Some(Entry::Region { spec, .. }) => {
                if spec.pd == pd {
                    return not_ours;
                }
                spec.pd
            }
            Some(Entry::Window(window)) => window.pd,
        };
        if owner != pd {
            return Err(KeyError::WrongPd {
                key: key.0,
                owner: owner.0,
                asked: pd.0,
            });
        }
        let window = self.window(key)?;
        match (window.kind, window.bound) {
            (WindowType::One, _) => return not_ours,
            (WindowType::Two, None) => return Err(KeyError::NotBound { key: key.0 }),
            (WindowType::Two, Some(bound)) if bound.qp != Some(qp) => {
                return Err(KeyError::WrongQp {
                    key: key.0,
                    qp: qp.0,
                });
            }
            (WindowType::Two, Some(_)) => {}
        }
        self.unbind(self.slot_of(key));
        Ok(())
    }

    /// A queue pair is gone, and the windows that only it could use are free again.
    pub fn release_windows_of(&mut self, qp: QpNum) {
        if self.tied == 0 {
            return;
        }
        for at in 0..self.slots.len() {
            if let Some(Entry::Window(w)) = &self.slots[at].entry
                && w.bound.is_some_and(|b| b.qp == Some(qp))
            {
                self.unbind(at);
            }
        }
    }

    /// Resolves an access through a window.
    pub(crate) fn through(&self, window: &Window, a: &MemAccess) -> Result<(&T, u64), KeyError> {
        let key = a.key.0;
        let Some(bound) = window.bound else {
            return Err(KeyError::NotBound { key });
        };
        if !a.remote {
            return Err(KeyError::Unknown { key });
        }
        if bound.qp.is_some_and(|qp| qp != a.qp) {
            return Err(KeyError::WrongQp { key, qp: a.qp.0 });
        }
        let offset = permit(&bound.spec, a)?;
        let (_, value) = self.get(bound.region).ok_or(KeyError::NotBound { key })?;
        Ok((value, bound.offset.wrapping_add(offset)))
    }

    /// The window in the slot of a key, whose tag does not count.
    fn window(&self, key: Key) -> Result<&Window, KeyError> {
        match self.slots.get(self.slot_of(key)) {
            Some(slot) if slot.key >> 8 == key.0 >> 8 => match &slot.entry {
                Some(Entry::Window(window)) => Ok(window),
                _ => Err(KeyError::Unknown { key: key.0 }),
            },
            _ => Err(KeyError::Unknown { key: key.0 }),
        }
    }

    fn unbind(&mut self, at: usize) {
        let Some(Entry::Window(window)) = &mut self.slots[at].entry else {
            return;
        };
        let Some(bound) = window.bound.take() else {
            return;
        };
        self.tied -= usize::from(bound.qp.is_some());
        if let Some(Entry::Region { windows, .. }) =
            self.slot_mut(bound.region).and_then(|s| s.entry.as_mut())
        {
            *windows -= 1;
        }
    }
}

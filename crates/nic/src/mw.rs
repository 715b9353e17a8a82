//! Memory windows. Binding them is work for a send queue; here they are made and ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use adverb_engine::{Key, WindowType};

use crate::context::Context;
use crate::error::NicError;
use crate::mr::key_error;
use crate::pd::PdUse;

/// A memory window (man ibv_alloc_mw).
pub struct Mw {
    context: Arc<Context>,
    key: Key,
    closed: AtomicBool,
    _pd: PdUse,
}

impl Mw {
    pub(crate) fn new(
        context: &Arc<Context>,
        pd: PdUse,
        kind: WindowType,
    ) -> Result<Arc<Self>, NicError> {
        context
            .quotas
            .mws
            .claim("MW", context.device().limits().max_mw)?;
        let inserted = context
            .nic()
            .keys
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert_window(pd.id, kind);
        match inserted {
            Ok(key) => Ok(Arc::new(Self {
                context: Arc::clone(context),
                key,
                closed: AtomicBool::new(false),
                _pd: pd,
            })),
            Err(e) => {
                context.quotas.mws.release();
                Err(key_error(e, 0, 0))
            }
        }
    }

    /// The key it began with; binds change the tag, the low eight bits.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Ends the window; whoever still has its key is refused from now on.
    pub fn dealloc(&self) -> Result<(), NicError> {
        self.context.usable()?;
        self.release();
        Ok(())
    }

    fn release(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let nic = self.context.nic();
        nic.keys
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove_window(self.key);
        self.context.quotas.mws.release();
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        if self.context.nic().alive() {
            self.release();
        }
    }
}

//! A line of tasks, first come, first woken.

use std::collections::VecDeque;
use std::task::Waker;

/// A place in a [`Line`]. It stays the place of its future after the future was woken, so that [`Line::leave`] can tell.
pub(crate) type Place = Option<u64>;

#[derive(Debug, Default)]
pub(crate) struct Line {
    next: u64,
    waiting: VecDeque<(u64, Waker)>,
}

impl Line {
    /// Whoever has a place keeps it, perhaps with another waker; others come last.
    pub(crate) fn enter(&mut self, place: &mut Place, waker: &Waker) {
        if let Some((_, known)) = self.waiting.iter_mut().find(|(p, _)| Some(*p) == *place) {
            known.clone_from(waker);
            return;
        }
        self.waiting.push_back((self.next, waker.clone()));
        *place = Some(self.next);
        self.next += 1;
    }

    /// Gives the place up. `true` if its owner had been woken and has not come again: the next one should be.
    pub(crate) fn leave(&mut self, place: &mut Place) -> bool {
        let Some(place) = place.take() else {
            return false;
        };
        match self.waiting.iter().position(|(p, _)| *p == place) {
            Some(at) => {
                self.waiting.remove(at);
                false
            }
            None => true,
        }
    }

    /// The waker of the first, who is in line no longer.
    pub(crate) fn call(&mut self) -> Option<Waker> {
        self.waiting.pop_front().map(|(_, waker)| waker)
    }

    /// The wakers of all, who stay in line.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Waker> {
        self.waiting.iter().map(|(_, waker)| waker)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_and_the_first_is_called_first() {
        let mut line = Line::default();
        let waker = Waker::noop();
        let (mut a, mut b) = (None, None);
        line.enter(&mut a, waker);
        line.enter(&mut b, waker);
        line.enter(&mut a, waker);
        assert_eq!(line.all().count(), 2);
        assert!(line.call().is_some());
        assert!(line.leave(&mut a), "it was called");
        assert!(!line.leave(&mut a), "it has left already");
        assert!(!line.leave(&mut b), "it was not called");
        assert!(line.is_empty() && line.call().is_none());
    }
}

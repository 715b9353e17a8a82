//! A line of tasks, first come, first woken.

use std::collections::VecDeque;
use std::task::Waker;

/// A place in a [`Line`]. It stays the place of its future after the future was woken, so that [`Line::leave`] can tell.
pub(crate) type Place = Option<u64>;

/// How somebody left a line. Wakers are given out, since dropping one may run code that comes back here.
#[derive(Debug)]
pub(crate) enum Left {
    /// They had no place.
    Nothing,
    /// They were still in line.
    InLine(Waker),
    /// They had been called and have not come again: the next one should be.
    Called,
}

#[derive(Debug, Default)]
pub(crate) struct Line {
    next: u64,
    waiting: VecDeque<(u64, Waker)>,
}

impl Line {
    /// Whoever has a place keeps it, perhaps with another waker, and gets the old one back; others come last.
    pub(crate) fn enter(&mut self, place: &mut Place, waker: &Waker) -> Option<Waker> {
        let mut known = self.waiting.iter_mut();
        if let Some((_, known)) = known.find(|(p, _)| Some(*p) == *place) {
            return (!known.will_wake(waker)).then(|| std::mem::replace(known, waker.clone()));
        }
        self.waiting.push_back((self.next, waker.clone()));
        *place = Some(self.next);
        self.next += 1;
        None
    }

    /// Gives the place up.
    pub(crate) fn leave(&mut self, place: &mut Place) -> Left {
        let Some(place) = place.take() else {
            return Left::Nothing;
        };
        let at = self.waiting.iter().position(|(p, _)| *p == place);
        match at.and_then(|at| self.waiting.remove(at)) {
            Some((_, waker)) => Left::InLine(waker),
            None => Left::Called,
        }
    }

    /// Nobody waits any more.
    pub(crate) fn close(&mut self) -> impl Iterator<Item = Waker> {
        self.waiting.drain(..).map(|(_, waker)| waker)
    }

    /// Whether it is the turn of whoever has this place, or none yet.
    pub(crate) fn is_turn_of(&self, place: &Place) -> bool {
        self.waiting.front().is_none_or(|(p, _)| Some(*p) == *place)
    }

    /// The waker of the first, who stays in line.
    pub(crate) fn first(&self) -> Option<&Waker> {
        self.waiting.front().map(|(_, waker)| waker)
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
        assert!(matches!(line.leave(&mut a), Left::Called));
        assert!(matches!(line.leave(&mut a), Left::Nothing));
        assert!(matches!(line.leave(&mut b), Left::InLine(_)));
        assert!(line.is_empty() && line.call().is_none());
    }
}

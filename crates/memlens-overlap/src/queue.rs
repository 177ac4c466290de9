//! Something that serves one line after another, and whom a late one waited for.

use std::collections::VecDeque;

/// Turns that are remembered: what a line can wait for.
const REMEMBERED: usize = 64;

/// An operand's turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    operand: u32,
    begins: f64,
    ends: f64,
}

/// Turns, one behind the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    ends: f64,
    turns: VecDeque<Turn>,
}

impl Queue {
    /// An operand's turn, of so many cycles, from then on or when it comes. Returned is its end.
    pub(crate) fn take(&mut self, operand: u32, wanted: f64, cycles: f64) -> f64 {
        let begins = self.ends.max(wanted);
        self.ends = begins + cycles;
        if cycles > 0.0 {
            if self.turns.len() == REMEMBERED {
                self.turns.pop_front();
            }
            self.turns.push_back(Turn { operand, begins, ends: self.ends });
        }
        self.ends
    }

    /// Whose turn it was from then until the last one's end: operands and cycles.
    pub(crate) fn since(&self, time: f64) -> impl Iterator<Item = (u32, f64)> + '_ {
        let late = self.turns.iter().rev().take_while(move |turn| turn.ends > time);
        late.map(move |turn| (turn.operand, turn.ends - turn.begins.max(time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_before_is_waited_for() {
        let mut queue = Queue::default();
        assert_eq!(
            (queue.take(1, 10.0, 4.0), queue.take(2, 11.0, 6.0), queue.take(1, 0.0, 4.0)),
            (14.0, 20.0, 24.0)
        );
        // Of what is late from 13 on.
        assert_eq!(queue.since(13.0).collect::<Vec<_>>(), [(1, 4.0), (2, 6.0), (1, 1.0)]);
        assert_eq!(queue.since(24.0).count(), 0);
        // A pause.
        assert_eq!(queue.take(3, 100.0, 4.0), 104.0);
        assert_eq!(queue.since(22.0).map(|(_, cycles)| cycles).sum::<f64>(), 6.0);
        // What takes no time is nobody's fault.
        assert_eq!(queue.take(4, 200.0, 0.0), 200.0);
        assert_eq!(queue.since(104.0).count(), 0);
    }
}

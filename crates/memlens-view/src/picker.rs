//! A list of columns, of which one is chosen to sort by.

use memlens_report::Column;

/// The list, and which of it is chosen.
#[derive(Clone, Debug)]
pub(crate) struct Picker {
    /// `None` stands for what rows are sorted by when nobody has chosen.
    pub(crate) choices: Vec<Option<Column>>,
    pub(crate) chosen: usize,
    /// The first choice that is in sight.
    top: usize,
}

impl Picker {
    /// Of these columns, with the present one chosen.
    pub(crate) fn new(columns: &[Column], present: Option<Column>) -> Self {
        let choices: Vec<_> = std::iter::once(None).chain(columns.iter().copied().map(Some)).collect();
        let chosen = choices.iter().position(|choice| *choice == present).unwrap_or(0);
        Self { choices, chosen, top: 0 }
    }

    /// The word for a choice, and what it means.
    pub(crate) fn words(choice: Option<Column>) -> (&'static str, &'static str) {
        let usual = (
            "as usual",
            "the share of what matters most: of the stalls where they are 1 % of the time or more",
        );
        choice.map_or(usual, |column| (column.as_str(), column.meaning()))
    }

    /// By so many, up or down.
    pub(crate) fn step(&mut self, by: isize) {
        let last = self.choices.len() - 1;
        self.chosen = self.chosen.saturating_add_signed(by).min(last);
    }

    /// Chooses what is in this line of those in sight. Says whether it was chosen already; None: there is nothing.
    pub(crate) fn point_at(&mut self, line: usize) -> Option<bool> {
        let at = self.top + line;
        let was_chosen = self.chosen == at;
        (at < self.choices.len()).then(|| {
            self.chosen = at;
            was_chosen
        })
    }

    /// The choices in sight, each with whether it is the chosen one, where so many have room.
    pub(crate) fn in_sight(&mut self, height: usize) -> impl Iterator<Item = (Option<Column>, bool)> {
        let height = height.max(1);
        self.top = self.top.min(self.chosen).max((self.chosen + 1).saturating_sub(height));
        let chosen = self.chosen;
        let all = self.choices.iter().copied().enumerate();
        all.skip(self.top).take(height).map(move |(at, choice)| (choice, at == chosen))
    }
}

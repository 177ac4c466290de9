//! One line of the doctor's report.

/// How things stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// As it should be.
    Good,
    /// Works, with a limit.
    Limited,
    /// Does not work.
    Bad,
}

/// What was looked at, what was found, what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it stands.
    pub mark: Mark,
    /// What was looked at, a word or two.
    pub topic: &'static str,
    /// What was found.
    pub text: String,
    /// The command that lifts the limit, or what else to do.
    pub advice: Option<String>,
}

/// Width of the topics' column.
const TOPIC_COLUMNS: usize = 19;

impl Finding {
    /// Nothing to complain about.
    pub fn good(topic: &'static str, text: impl Into<String>) -> Self {
        Self { mark: Mark::Good, topic, text: text.into(), advice: None }
    }

    /// A limit, and how to lift it.
    pub fn limited(topic: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { mark: Mark::Limited, topic, text: text.into(), advice: Some(advice.into()) }
    }

    /// A failure, and what to do.
    pub fn bad(topic: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { mark: Mark::Bad, topic, text: text.into(), advice: Some(advice.into()) }
    }

    /// The same without advice: nothing can be done about it.
    pub fn without_advice(mut self) -> Self {
        self.advice = None;
        self
    }

    /// The line, and a second one with the advice.
    pub fn render(&self, colour: bool) -> String {
        let (sign, code) = match self.mark {
            Mark::Good => ("✓", "32"),
            Mark::Limited => ("!", "33"),
            Mark::Bad => ("✗", "31"),
        };
        let sign = if colour { format!("\x1b[{code}m{sign}\x1b[0m") } else { sign.to_owned() };
        let mut text = format!("{sign} {:TOPIC_COLUMNS$}{}\n", self.topic, self.text);
        if let Some(advice) = &self.advice {
            text += &format!("  {:TOPIC_COLUMNS$}→ {advice}\n", "");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_stands_below_the_text() {
        let finding = Finding::limited("memory", "little", "buy some");
        assert_eq!(finding.render(false), "! memory             little\n                     → buy some\n");
        assert_eq!(finding.clone().without_advice().render(false).lines().count(), 1);
        assert!(finding.render(true).starts_with("\x1b[33m!\x1b[0m memory"));
    }
}

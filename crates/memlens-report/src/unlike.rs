//! What makes two profiles' figures unlike each other, besides their programs.

use memlens_profile::{MERGED_FROM, Profile};

/// How a profile's program ended.
pub(crate) fn end(profile: &Profile) -> String {
    match (profile.run.signal, profile.run.exit_code) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("ended with exit code {code}"),
        (None, None) => "went on".to_owned(),
    }
}

/// What a profile's counts are of: counts of merged ones are added up.
pub(crate) fn merged(profile: &Profile) -> String {
    let note = profile.run.notes.iter().find(|note| note.starts_with(MERGED_FROM));
    note.map_or("one run".to_owned(), |note| note[MERGED_FROM.len()..].trim().to_owned())
}

/// What a reader of a comparison has to know before its figures; mostly nothing.
pub(crate) fn unlike(a: &Profile, b: &Profile) -> Vec<String> {
    let mut pieces = Vec::new();
    let (of_a, of_b) = (merged(a), merged(b));
    if of_a != of_b {
        pieces
            .push(format!("A's counts are of {of_a}, B's of {of_b}, added up: only shares can be compared"));
    }
    let arguments = |profile: &Profile| profile.run.command.get(1..).map(<[String]>::to_vec);
    if arguments(a) != arguments(b) {
        pieces.push("the programs had other arguments".to_owned());
    }
    let (of_a, of_b) = (end(a), end(b));
    if of_a != of_b {
        pieces.push(format!("A {of_a}, B {of_b}"));
    }
    for (name, profile) in [("A", a), ("B", b)] {
        if profile.attribution.truncated {
            pieces.push(format!("{name} ends before its program did"));
        }
        if let Some(bursts) = profile.run.too_few_bursts() {
            pieces.push(format!(
                "{name}'s bursts tell as much as {bursts:.0} of equal weight: not to be relied on"
            ));
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unlike_is_told() {
        let a = Profile::default();
        assert!(unlike(&a, &a).is_empty());
        let mut b = Profile::default();
        b.run.notes.push(format!("{MERGED_FROM} 3 runs"));
        b.run.command = vec!["app".into(), "more".into()];
        b.run.signal = Some(6);
        b.run.effective_bursts = Some(3.2);
        b.attribution.truncated = true;
        let told = unlike(&a, &b);
        let parts = [
            "A's counts are of one run, B's of 3 runs",
            "other arguments",
            "A went on, B was ended by signal 6",
            "B ends before its program did",
            "B's bursts tell as much as 3 of equal weight",
        ];
        assert_eq!(told.len(), parts.len(), "{told:?}");
        assert!(parts.iter().zip(&told).all(|(part, told)| told.contains(part)), "{told:?}");
    }
}

//! Text for shell scripts: nothing a user names can break out of its quotes.

/// `text` as one shell word.
#[must_use]
pub fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// `text` without line breaks or control characters, for a comment line.
#[must_use]
pub fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metacharacters_stay_inside_quotes() {
        assert_eq!(quote("--tensor-model-parallel-size"), "--tensor-model-parallel-size");
        assert_eq!(quote("$(rm -rf x)"), "'$(rm -rf x)'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
        assert_eq!(comment("a\nrm x"), "a rm x");
    }
}

//! The assignments of a Python file, as far as they can be known without running it: what a configuration function sets.

use serde_json::{Map, Value};

/// Whether a file is Python by its ending or its first line.
#[must_use]
pub fn is_python(origin: &str, text: &str) -> bool {
    let begins = ["\"\"\"", "'''", "import ", "from ", "def "];
    origin.ends_with(".py") || begins.iter().any(|begin| text.trim_start().starts_with(begin))
}

/// Dotted names and the text of what is assigned to them, spaces collapsed; a later assignment wins.
#[must_use]
pub fn assignments(text: &str) -> Map<String, Value> {
    let mut found = Map::new();
    for statement in statements(text) {
        let Some((name, value)) = statement.split_once('=') else { continue };
        let (name, value) = (name.trim(), value.trim());
        if is_dotted(name) && !value.starts_with('=') {
            found.insert(name.to_owned(), Value::String(unquoted(value).to_owned()));
        }
    }
    found
}

fn is_dotted(name: &str) -> bool {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    !name.is_empty() && name.split('.').all(is_name)
}

/// The text of a plain string; anything else as it is.
fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

/// Logical lines: comments and block strings are left out, brackets join lines.
fn statements(text: &str) -> Vec<String> {
    let (mut all, mut statement) = (Vec::new(), String::new());
    let (mut depth, mut rest) = (0usize, text);
    while let Some(symbol) = rest.chars().next() {
        if let Some(quote) = ["\"\"\"", "'''"].into_iter().find(|quote| rest.starts_with(quote)) {
            rest = rest[3..].split_once(quote).map_or("", |(_, after)| after);
            continue;
        }
        match symbol {
            '"' | '\'' => {
                let length = string(rest, symbol);
                statement.push_str(&rest[..length]);
                rest = &rest[length..];
                continue;
            }
            '#' => {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
                continue;
            }
            '\n' | ';' if depth == 0 => all.push(std::mem::take(&mut statement)),
            other => {
                match other {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if !other.is_whitespace() || !statement.ends_with(' ') {
                    statement.push(if other.is_whitespace() { ' ' } else { other });
                }
            }
        }
        rest = &rest[symbol.len_utf8()..];
    }
    all.push(statement);
    all
}

/// Bytes of the string that `text` starts with, its quotes included; it ends with its line.
fn string(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, symbol) in text.char_indices().skip(1) {
        match symbol {
            '\n' => return at,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if symbol == quote => return at + quote.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn assignments_are_found_and_nothing_else() {
        let text = "\"\"\"A doc = string.\"\"\"\nimport os  # x = 1\n\n\ndef plan():\n    config = llama3_8b()\n    \
            config.a.b = 4\n    config.a.c = \"always # not a comment\"\n    config.d = [\n        [\"x\", \"y\"],\n        \
            [\"z\"],\n    ]\n    if config.a.b == 4:\n        config.a.b = 8\n    return config\n";
        let found = assignments(text);
        let value = |name: &str| found.get(name).and_then(Value::as_str);
        assert_eq!(value("config"), Some("llama3_8b()"));
        assert_eq!(value("config.a.b"), Some("8"));
        assert_eq!(value("config.a.c"), Some("always # not a comment"));
        assert_eq!(value("config.d"), Some("[ [\"x\", \"y\"], [\"z\"], ]"));
        assert_eq!(found.len(), 4);
        assert!(is_python("plan.py", "") && is_python("x", text) && !is_python("x", "--a 1"));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in r#"[-a-z=."'()\[\]{}# \\\n;é]{0,80}"#) {
            let _ = assignments(&text);
        }
    }
}

//! The words of a shell script, as far as they can be known without running it: quotes, comments, continued lines,
//! arrays, and variables that the script itself sets to plain text.

use std::collections::BTreeMap;

/// Most bytes the text of a variable may grow to when others are put into it.
const MOST_EXPANDED: usize = 64 << 10;

/// The word that stands between two commands.
pub const END: &str = "\n";

/// Words in order, [`END`] between commands, and the variables set. Commands are not run: what they would print stays as it is written.
#[must_use]
pub fn split(text: &str) -> (Vec<String>, BTreeMap<String, String>) {
    let mut reader = Reader::default();
    let mut symbols = text.chars().peekable();
    while let Some(symbol) = symbols.next() {
        match symbol {
            '\\' => match symbols.next() {
                Some('\n') | None => {}
                Some('\r') => {
                    symbols.next_if_eq(&'\n');
                }
                Some(other) => reader.push(other),
            },
            '\'' => {
                reader.started = true;
                for inner in symbols.by_ref().take_while(|&c| c != '\'') {
                    reader.push(inner);
                }
            }
            '"' => quoted(&mut symbols, &mut reader),
            '$' => expand(&mut symbols, &mut reader),
            '#' if !reader.started => while symbols.next_if(|&c| c != '\n').is_some() {},
            '(' => reader.open(1),
            ')' => reader.open(-1),
            ';' | '&' | '|' | '<' | '>' => reader.stop(),
            '\n' if reader.depth <= 0 => reader.stop(),
            other if other.is_whitespace() => reader.end(),
            other => reader.push(other),
        }
    }
    reader.end();
    (reader.words, reader.variables)
}

type Symbols<'a> = std::iter::Peekable<std::str::Chars<'a>>;

#[derive(Default)]
struct Reader {
    words: Vec<String>,
    variables: BTreeMap<String, String>,
    word: String,
    started: bool,
    depth: i32,
    array: bool,
}

impl Reader {
    fn push(&mut self, symbol: char) {
        self.started = true;
        self.word.push(symbol);
    }

    /// Ends a word: an assignment is remembered, anything else is a word.
    fn end(&mut self) {
        if !std::mem::take(&mut self.started) {
            return;
        }
        let word = std::mem::take(&mut self.word);
        if std::mem::take(&mut self.array) && word.is_empty() {
            return;
        }
        match word.split_once('=').filter(|(name, _)| is_name(name.trim_end_matches('+'))) {
            Some((name, value)) => {
                let kept = self.variables.entry(name.trim_end_matches('+').to_owned()).or_default();
                if !name.ends_with('+') {
                    kept.clear();
                }
                if kept.len() + value.len() <= MOST_EXPANDED {
                    kept.push_str(value);
                }
            }
            None => self.words.push(word),
        }
    }

    /// Ends a command.
    fn stop(&mut self) {
        self.end();
        if self.words.last().is_some_and(|word| word != END) {
            self.words.push(END.to_owned());
        }
    }

    /// Enters or leaves parentheses, inside which a line break ends nothing.
    fn open(&mut self, by: i32) {
        self.stop();
        self.depth = (self.depth + by).max(0);
    }

    /// Puts the value of a variable into the word; outside quotes it is split into words.
    fn put(&mut self, value: &str, whole: bool) {
        if self.word.len() + value.len() > MOST_EXPANDED {
            return;
        }
        let mut first = true;
        for part in value.split(|c: char| c.is_whitespace() && !whole) {
            if !first {
                self.end();
            }
            first = false;
            self.started |= !part.is_empty();
            self.word.push_str(part);
        }
    }
}

fn is_name(text: &str) -> bool {
    let mut symbols = text.chars();
    symbols.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && symbols.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn quoted(symbols: &mut Symbols, reader: &mut Reader) {
    reader.started = true;
    while let Some(symbol) = symbols.next() {
        match symbol {
            '"' => return,
            '\\' => match symbols.next() {
                Some('\n') | None => {}
                Some(next @ ('"' | '\\' | '$' | '`')) => reader.push(next),
                Some(next) => {
                    reader.push('\\');
                    reader.push(next);
                }
            },
            '$' => variable(symbols, reader, true),
            other => reader.push(other),
        }
    }
}

fn expand(symbols: &mut Symbols, reader: &mut Reader) {
    variable(symbols, reader, false);
}

/// `$NAME`, `${NAME}`, `${NAME:-default}`; `${NAME[@]}` stands for words that are read where the array is set.
fn variable(symbols: &mut Symbols, reader: &mut Reader, whole: bool) {
    match symbols.peek() {
        Some('{') => {
            symbols.next();
            let inner: String = symbols.by_ref().take_while(|&c| c != '}').collect();
            let name: String = inner.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let rest = &inner[name.len()..];
            let default = rest.strip_prefix(":-").or_else(|| rest.strip_prefix('-'));
            match (reader.variables.get(&name).cloned(), default) {
                _ if rest.starts_with("[@]") || rest.starts_with("[*]") => reader.array = true,
                (Some(value), _) => reader.put(&value, whole),
                (None, Some(default)) => reader.put(default, whole),
                (None, None) => reader.put(&format!("${{{inner}}}"), true),
            }
        }
        Some('(') => {
            symbols.next();
            let inner = command(symbols);
            reader.put(&format!("$({inner})"), true);
        }
        Some(c) if c.is_ascii_alphabetic() || *c == '_' => {
            let mut name = String::new();
            while let Some(c) = symbols.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                name.push(c);
            }
            match reader.variables.get(&name).cloned() {
                Some(value) => reader.put(&value, whole),
                None => reader.put(&format!("${name}"), true),
            }
        }
        _ => reader.push('$'),
    }
}

/// The text of a command up to its closing parenthesis.
fn command(symbols: &mut Symbols) -> String {
    let mut depth = 1;
    let mut text = String::new();
    for symbol in symbols.by_ref() {
        depth += match symbol {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            break;
        }
        text.push(symbol);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<String> {
        split(text).0
    }

    #[test]
    fn arrays_variables_and_continued_lines() {
        let script = r#"
            #!/bin/bash
            TP=8   # tensor parallel
            export CUDA_DEVICE_MAX_CONNECTIONS=1
            ARGS=(
                --tensor-model-parallel-size "$TP" --pipeline-model-parallel-size ${PP:-4}
                --moe-layer-freq '([0]*3+[1]*58)'
            )
            torchrun --nproc-per-node 8 pretrain_gpt.py "${ARGS[@]}" \
                --bf16
        "#;
        let (words, variables) = split(script);
        let text = words.join(" ").replace(" \n ", " ; ");
        assert!(text.contains("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4"), "{text}");
        assert!(text.contains("--moe-layer-freq ([0]*3+[1]*58)"), "{text}");
        assert!(text.trim_end().ends_with("pretrain_gpt.py --bf16"), "{text}");
        assert_eq!(variables.get("CUDA_DEVICE_MAX_CONNECTIONS").map(String::as_str), Some("1"));
    }

    #[test]
    fn nothing_is_run() {
        assert_eq!(
            words("--num-layers $(cat /etc/passwd | wc -l) --x"),
            ["--num-layers", "$(cat /etc/passwd | wc -l)", "--x"]
        );
        assert_eq!(words("--a $MISSING"), ["--a", "$MISSING"]);
        assert_eq!(words("OPTS='--a 1 --b 2'\nrun $OPTS"), ["run", "--a", "1", "--b", "2"]);
    }

    proptest! {
        #[test]
        fn any_text_is_split(text in r#"[-a-z=$(){}"' \\\n#:@\[\]]{0,80}"#) {
            let _ = split(&text);
        }

        #[test]
        fn what_is_quoted_comes_back(word in "[ -~]{1,40}") {
            // NAME=value and NAME+=value are assignments.
            let assigned = word.split_once('=').map(|(name, _)| name.strip_suffix('+').unwrap_or(name));
            prop_assume!(!assigned.is_some_and(is_name));
            prop_assert_eq!(words(&crate::launch::shell::quote(&word)), vec![word]);
        }
    }
}

//! Slurm's host lists: `node[01-03,7],login1`.

/// Most hosts that an expression may stand for.
const MOST: usize = 1 << 20;

/// The names that `text` stands for, in order.
///
/// # Errors
/// A bracket without an end, a range that goes down, or more than a million names.
pub fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in split(text)? {
        let mut open = vec![String::new()];
        let mut rest = part.as_str();
        while let Some((before, after)) = rest.split_once('[') {
            let (inside, behind) =
                after.split_once(']').ok_or_else(|| format!("`{part}` has a `[` without `]`"))?;
            let numbers = ranges(inside)?;
            if open.len().saturating_mul(numbers.len()) > MOST {
                return Err(format!("`{part}` stands for more than {MOST} names"));
            }
            open = open
                .iter()
                .flat_map(|stem| numbers.iter().map(move |number| format!("{stem}{before}{number}")))
                .collect();
            rest = behind;
        }
        names.extend(open.into_iter().map(|stem| stem + rest));
        if names.len() > MOST {
            return Err(format!("more than {MOST} names"));
        }
    }
    Ok(names)
}

/// Parts between commas outside of brackets.
fn split(text: &str) -> Result<Vec<String>, String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    if depth != 0 {
        return Err(format!("`{}` has unequal brackets", text.chars().take(60).collect::<String>()));
    }
    Ok(parts.into_iter().filter(|part| !part.is_empty()).collect())
}

/// `01-03,7` as `01`, `02`, `03`, `7`.
fn ranges(text: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("`[{}]` is no list of numbers", text.chars().take(60).collect::<String>());
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let width = first.len();
        let (first, last): (u64, u64) =
            (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if last < first || last - first >= MOST as u64 {
            return Err(wrong());
        }
        numbers.extend((first..=last).map(|n| format!("{n:0width$}")));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_expand_with_their_zeros() {
        assert_eq!(expand("n[01-03,7],login1").unwrap(), ["n01", "n02", "n03", "n7", "login1"]);
        assert_eq!(expand("r[0-1]n[08-09]x").unwrap(), ["r0n08x", "r0n09x", "r1n08x", "r1n09x"]);
        for wrong in ["n[1-", "n[3-1]", "n[a-b]", "n[0-99999999]", "n[0-9999]m[0-9999]"] {
            assert!(expand(wrong).is_err(), "{wrong}");
        }
    }
}

//! JSON with the mistakes that a plain parser hides: a key that stands twice in one object is an error.

use super::ModelError;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Longest text that is read, in bytes; real configurations have a few thousand.
const LONGEST: usize = 16 << 20;

/// Reads a JSON document.
///
/// # Errors
/// [`ModelError::Syntax`] with line and column, and the line itself.
pub(super) fn parse(origin: &str, text: &str) -> Result<Value, ModelError> {
    let fail = |message| ModelError::Syntax { origin: origin.to_owned(), message };
    if text.len() > LONGEST {
        return Err(fail(format!("has {} bytes, expected at most {LONGEST}", text.len())));
    }
    match serde_json::from_str::<Unique>(text) {
        Ok(Unique(value)) => Ok(value),
        Err(error) => {
            let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default().trim();
            let shown: String = line.chars().take(80).collect();
            Err(fail(format!("{error}: `{shown}`")))
        }
    }
}

/// A value whose objects name every key once.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(value)) = access.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("`{key}` stands twice")));
            }
            let Unique(value) = access.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

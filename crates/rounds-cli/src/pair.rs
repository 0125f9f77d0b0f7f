//! `name=text` and `name:=json`, as arguments and answers are typed on the command line.

use serde_json::Value;

/// A name and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) value: Given,
}

/// A value as it was typed. Text may still be converted to the type of a field; JSON is taken as it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Given {
    Text(String),
    Json(Value),
}

impl Pair {
    pub(crate) fn parse(text: &str) -> Result<Self, NoPair> {
        let (name, value) = text.split_once('=').ok_or(NoPair::Value)?;
        let (name, value) = match name.strip_suffix(':') {
            Some(name) => (name, Given::Json(serde_json::from_str(value).map_err(NoPair::Json)?)),
            None => (name, Given::Text(value.to_owned())),
        };
        if name.is_empty() {
            return Err(NoPair::Name);
        }
        Ok(Self { name: name.to_owned(), value })
    }
}

impl Given {
    /// The value as JSON; text becomes a string.
    pub(crate) fn into_json(self) -> Value {
        match self {
            Self::Text(text) => Value::String(text),
            Self::Json(json) => json,
        }
    }
}

/// Reason why a text is not a pair.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPair {
    #[error("it has no value: write NAME=TEXT or NAME:=JSON")]
    Value,
    #[error("it has no name: write NAME=TEXT or NAME:=JSON")]
    Name,
    #[error("the value after := is not JSON: {0}")]
    Json(serde_json::Error),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_a_text_and_json_is_what_it_says() {
        let value = |text| Pair::parse(text).map(|pair| (pair.name, pair.value.into_json())).ok();
        assert_eq!(value("n=3"), Some(("n".to_owned(), json!("3"))));
        assert_eq!(value("n:=3"), Some(("n".to_owned(), json!(3))));
        assert_eq!(value("q=a=b:=c"), Some(("q".to_owned(), json!("a=b:=c"))));
        assert_eq!(value("a.b="), Some(("a.b".to_owned(), json!(""))));
        for wrong in ["n", "=3", ":=3", "n:=three"] {
            assert_eq!(value(wrong), None, "{wrong}");
        }
    }
}

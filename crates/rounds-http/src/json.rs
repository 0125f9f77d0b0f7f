//! Counts the JSON values of a request, in one pass over its bytes, before any value is built.
//!
//! In memory, a number of one byte takes 32 bytes and an object of one member several hundred, and rmcp holds several
//! copies of a request: a body of 4 MiB took 1.5 GiB. Limiting both the bytes and the number of values and keys bounds
//! the memory of a request.

use std::{
    fmt::{self, Display},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};

use crate::{dispatch::BoxResponse, log::Rare};

/// Whether a text has more values than this. A value takes at least one byte, so a text shorter than the limit is not
/// scanned.
pub(crate) fn exceeds(text: &[u8], limit: usize) -> bool {
    text.len() > limit && Count::default().read(text) > limit
}

/// The response to a request with too many values. rmcp sends the same status for a body with too many bytes.
pub(crate) fn too_many(limit: usize) -> BoxResponse {
    static REFUSED: Rare = Rare::new();
    if let Some(more) = REFUSED.passes() {
        tracing::warn!(target: "rounds", limit, more, "rejected a request with too many JSON values");
    }
    let said = format!(
        "Payload Too Large: request body has more than {limit} JSON values, keys included. Send less in one request, \
         or raise the server's limit with `Endpoint::with_json_values`"
    );
    let mut response = Response::new(Full::from(said).boxed());
    *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    response
}

/// A body whose values are counted while it is read. If there are too many, it ends with an error.
pub(crate) struct Counted<B> {
    body: Pin<Box<B>>,
    count: Count,
    limit: usize,
    exceeded: Exceeded,
}

impl<B: Body> Counted<B> {
    /// The same request with a counted body, and the flag that tells whether the body had too many values.
    pub(crate) fn request(request: Request<B>, limit: usize) -> (Request<Self>, Exceeded) {
        let exceeded = Exceeded::default();
        let seen = exceeded.clone();
        let counted = |body| Self { body: Box::pin(body), count: Count::default(), limit, exceeded: seen };
        (request.map(counted), exceeded)
    }
}

impl<B: Body> Body for Counted<B> {
    type Data = Bytes;
    type Error = CountedError<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CountedError<B::Error>>>> {
        let Some(frame) = ready!(self.body.as_mut().poll_frame(cx)) else { return Poll::Ready(None) };
        let frame = frame.map_err(CountedError::Body)?;
        let frame = frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        if let Some(data) = frame.data_ref()
            && self.count.read(data) > self.limit
        {
            self.exceeded.0.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(Err(CountedError::TooMany)));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether a body had too many values.
#[derive(Clone, Default)]
pub(crate) struct Exceeded(Arc<AtomicBool>);

impl Exceeded {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reason why a counted body could not be read to its end.
#[derive(Debug)]
pub(crate) enum CountedError<E> {
    Body(E),
    TooMany,
}

impl<E: Display> Display for CountedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(error) => error.fmt(f),
            Self::TooMany => f.write_str("too many JSON values"),
        }
    }
}

/// The number of values so far in a text that arrives in pieces: strings, numbers, literals, arrays, objects and keys.
/// For invalid JSON, it is at least the number that a parser reads before it finds the error.
#[derive(Clone, Copy, Default)]
struct Count {
    values: usize,
    at: At,
}

#[derive(Clone, Copy, Default)]
enum At {
    #[default]
    Between,
    /// In a number or a literal.
    Word,
    String,
    Escape,
}

impl Count {
    fn read(&mut self, piece: &[u8]) -> usize {
        for byte in piece {
            let (begins, at) = match (self.at, byte) {
                (At::String, b'\\') => (false, At::Escape),
                (At::String, b'"') => (false, At::Between),
                (At::String | At::Escape, _) => (false, At::String),
                (_, b'"') => (true, At::String),
                (_, b'[' | b'{') => (true, At::Between),
                (_, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' | b']' | b'}') => (false, At::Between),
                (At::Between, _) => (true, At::Word),
                (At::Word, _) => (false, At::Word),
            };
            self.values += usize::from(begins);
            self.at = at;
        }
        self.values
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn count(text: &[u8]) -> usize {
        Count::default().read(text)
    }

    /// The same number for a parsed value.
    fn of(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(of).sum::<usize>(),
            Value::Object(members) => 1 + members.values().map(|value| 1 + of(value)).sum::<usize>(),
            _ => 1,
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            r#"["\\,:\[\]{} a]{0,8}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6).prop_map(Value::from_iter),
            ]
        })
    }

    #[test]
    fn every_value_and_every_key_counts_as_one() {
        for (text, values) in [
            ("", 0),
            ("0", 1),
            ("-1.5e+7", 1),
            ("null", 1),
            (r#""a\"b\\""#, 1),
            ("[]", 1),
            ("[0,0 , 0]", 4),
            (r#"{"":{}}"#, 3),
            (r#"{"a":[true,"b",{"c":null}],"d":1}"#, 10),
            ("\n\t [ 1\n,\r2 ] ", 3),
        ] {
            assert_eq!(count(text.as_bytes()), values, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_count_is_that_of_the_tree_in_pieces_of_any_size(value in any_json(), pretty: bool, size in 1_usize..9) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap_or_default();
            let mut pieces = Count::default();
            let last = text.as_bytes().chunks(size).map(|piece| pieces.read(piece)).last();
            prop_assert_eq!((count(text.as_bytes()), last), (of(&value), Some(of(&value))));
        }

        #[test]
        fn a_text_that_is_not_looked_at_has_no_more_bytes_than_values_are_allowed(text in any::<Vec<u8>>()) {
            prop_assert!(count(&text) <= text.len());
            prop_assert!(!exceeds(&text, text.len()));
        }
    }

    #[test]
    fn the_limit_itself_is_within_it() {
        let text = json!(vec![0; 100]).to_string();
        assert!(!exceeds(text.as_bytes(), 101));
        assert!(exceeds(text.as_bytes(), 100));
    }
}

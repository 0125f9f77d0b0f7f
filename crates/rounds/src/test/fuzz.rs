//! Fuzz targets: what reads bytes that a peer, a store or a relay may have written, each as a function of any bytes. A
//! target panics if a promise is broken. The test `fuzz` runs them on the corpus and on changes of it; `cargo xtask fuzz`
//! runs them with libFuzzer.

use std::sync::LazyLock;

use serde_json::Value;

use crate::{
    KeyRing, Limits,
    server::{
        engine::{self, journal::Journal},
        ledger::{ClaimId, ClaimKind, record::Place},
        seal::{
            Digest, FlowId,
            envelope::{Binding, Envelope},
            journal::{Pages, PagesWithoutTexts},
            message,
            ring::{DerivedRing, Purpose},
            token,
        },
    },
    shared::check::Fields,
};

/// A name, and a function of any bytes that panics if a promise is broken.
pub type Target = (&'static str, fn(&[u8]));

/// Every target of this crate.
pub const TARGETS: &[Target] = &[
    ("token", token),
    ("envelope", envelope),
    ("journal", journal),
    ("record", record),
    ("message", message),
    ("answers", answers),
    #[cfg(feature = "client")]
    ("client", crate::client::fuzz),
];

/// The keys that the golden files are sealed with.
static KEYS: LazyLock<[DerivedRing; 3]> = LazyLock::new(|| {
    let keys = KeyRing::from_bytes([[42; 32]]).expect("32 bytes are a key");
    [Purpose::State, Purpose::Record, Purpose::Message].map(|purpose| keys.derive(purpose, "golden"))
});

/// A token opens only if it was sealed, and then to what was sealed.
fn token(bytes: &[u8]) {
    let limit = Limits::default().token_bytes;
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(plaintext) = token::open(&KEYS[0], limit, text)
    {
        envelope(&plaintext);
    }
    let sealed = token::seal(&KEYS[0], [9; 24], bytes);
    if sealed.len() <= limit {
        assert_eq!(token::open(&KEYS[0], limit, &sealed).as_deref(), Ok(bytes));
    }
}

/// What is read from a token's contents is written and read again as the same.
fn envelope(bytes: &[u8]) {
    let Ok(envelope) = Envelope::from_bytes(bytes) else { return };
    let sealed = token::seal(&KEYS[0], [9; 24], envelope.to_plaintext());
    let written = token::open(&KEYS[0], sealed.len(), &sealed).expect("what was sealed opens");
    assert_eq!(Envelope::from_bytes(&written).as_ref(), Ok(&envelope));
    let now = envelope.span.issued_at;
    let (_, other) = (envelope.check(&envelope.binding, now), Digest::of_arguments(None));
    let target = envelope.binding.target.clone() + "!";
    let foreign = Binding { target, arguments: other, ..envelope.binding };
    assert!(envelope.check(&foreign, now).is_err(), "a token is good for its own target only");
    let _ = (envelope.span.remembered_until(), envelope.resume.journal_json());
    for spilled in [None, Some(bytes)] {
        let _ = envelope.resume.clone().again(spilled);
    }
}

/// A journal is written and read again as the same, also as JSON, and a handler can begin with it.
fn journal(bytes: &[u8]) {
    let of_text = str::from_utf8(bytes).ok().and_then(|json| Pages::from_json(json).ok());
    let previous = postcard::from_bytes::<PagesWithoutTexts>(bytes).ok().map(Pages::from);
    let read = postcard::from_bytes::<Pages>(bytes).ok();
    for pages in [of_text, previous, read].into_iter().flatten() {
        let written = postcard::to_stdvec(&pages).expect("a journal can be written");
        assert_eq!(postcard::from_bytes(&written).as_ref(), Ok(&pages));
        let json = pages.to_json();
        assert_eq!(Pages::from_json(&json).ok().as_ref(), Some(&pages), "{json}");
        let now = crate::time::Timestamp::from_millis(0);
        let _ = Journal::resumed(pages, &[], [].into(), &Limits::default(), now);
    }
}

/// A record opens only in its own place, and what cannot be read of its contents is an error.
fn record(bytes: &[u8]) {
    let flow = FlowId::from_bytes([7; 16]);
    let id = ClaimId { flow, what: ClaimKind::Round(1) };
    let place = Place::Outcome(id, Digest::of_principal("answers"));
    assert!(place.open(&KEYS[1], bytes.to_vec()).is_err(), "no key was used to seal it");
    let sealed = place.seal(&KEYS[1], [9; 24], bytes);
    assert!(Place::Spill(id).open(&KEYS[1], sealed.clone()).is_err(), "it is of another place");
    assert_eq!(place.open(&KEYS[1], sealed).as_deref(), Ok(bytes));
    engine::fuzz_reply(bytes);
}

/// A message opens only where it is addressed to, and what it says is read or is an error.
fn message(bytes: &[u8]) {
    assert!(message::open(&KEYS[2], "a", bytes).is_err(), "no key was used to seal it");
    let sealed = message::seal(&KEYS[2], [9; 24], "a", bytes);
    assert!(message::open(&KEYS[2], "b", &sealed).is_err(), "it is for another instance");
    assert_eq!(message::open(&KEYS[2], "a", &sealed).as_deref(), Ok(bytes));
    engine::route::fuzz(bytes);
}

/// Of an answer, what the form describes is taken, and taking it again changes nothing. The bytes are a schema and an
/// answer, as an array in JSON.
fn answers(bytes: &[u8]) {
    let Ok([schema, content]) = serde_json::from_slice::<[Value; 2]>(bytes) else { return };
    let Some(schema) = schema.as_object() else { return };
    let Ok(fields) = Fields::of(schema).matching(schema) else { return };
    let Ok(checked) = fields.check(&content) else { return };
    let properties = schema.get("properties").and_then(Value::as_object);
    // No form of this library requires a field that it does not describe.
    let mut required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    if !required.all(|name| properties.is_some_and(|properties| properties.contains_key(name))) {
        return;
    }
    for name in checked.keys() {
        assert!(properties.is_some_and(|properties| properties.contains_key(name)), "{name} is not in the form");
    }
    let checked = Value::Object(checked);
    let again = fields.check(&checked).map(Value::Object);
    assert_eq!(again.as_ref(), Ok(&checked), "of {content}");
}

//! A fuzz target for what a server sends over HTTP: a stream of events, of any bytes in pieces of any size. The test below
//! runs it on its corpus and on changes of it; `cargo xtask fuzz events` runs it with libFuzzer.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use futures_core::Stream as _;
use http_body_util::Full;
use rmcp::model::ServerJsonRpcMessage;
use sse_stream::SseStream;

use crate::bound::{Bound, Events};

/// Limit of an event, in bytes.
const MOST: usize = 256;

/// A name, and a function of any bytes that panics if a promise is broken.
type Target = (&'static str, fn(&[u8]));

/// The targets of this crate.
pub const TARGETS: &[Target] = &[("events", events)];

/// The limit on events holds however the bytes arrive, and no event that gets through has more data. The first byte is the
/// size of the pieces.
fn events(bytes: &[u8]) {
    let Some((&size, sent)) = bytes.split_first() else { return };
    let fits = Events::new((), Bound::new(MOST)).count(sent).is_ok();
    let mut pieces = Events::new((), Bound::new(MOST));
    let pieces_fit = sent.chunks(usize::from(size).max(1)).all(|piece| pieces.count(piece).is_ok());
    assert_eq!(fits, pieces_fit);
    let body = Events::new(Full::new(Bytes::copy_from_slice(sent)), Bound::new(MOST));
    let mut read = pin!(SseStream::new(body));
    let mut failed = false;
    // All of it is there, so nothing is pending.
    while let Poll::Ready(Some(event)) = read.as_mut().poll_next(&mut Context::from_waker(Waker::noop())) {
        let Ok(event) = event else {
            failed = true;
            continue;
        };
        let data = event.data.unwrap_or_default();
        assert!(data.len() <= MOST, "an event of {} bytes got through", data.len());
        drop(serde_json::from_str::<ServerJsonRpcMessage>(&data));
    }
    assert!(fits || failed, "an event that is too long is an error");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_stream_of_events_breaks_a_promise_of_what_reads_it() {
        for (name, target) in TARGETS {
            rounds_testkit::fuzz(name, *target, 3_000);
        }
    }
}

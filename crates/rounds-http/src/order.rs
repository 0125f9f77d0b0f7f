//! rmcp's responses with the members of questions in their declared order: rmcp writes them sorted by name.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, combinators::BoxBody};

use crate::dispatch::BoxResponse;

/// The same response, with the members of its questions in order.
pub(crate) fn in_order(response: BoxResponse) -> BoxResponse {
    match response.status() {
        StatusCode::OK => response.map(|body| InOrder(body).boxed()),
        _ => response,
    }
}

/// A body of which every frame is a whole message or event, as rmcp writes them.
struct InOrder(BoxBody<Bytes, Infallible>);

impl Body for InOrder {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = Pin::new(&mut self.0).poll_frame(cx);
        let ordered = |data: Bytes| ordered(&data).map_or(data, Bytes::from);
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(ordered))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// The reordered frame, or `None` if the order does not change.
fn ordered(frame: &[u8]) -> Option<String> {
    let frame = str::from_utf8(frame).ok()?;
    let ordered = match frame.starts_with('{') {
        true => rounds::order::in_order(frame)?,
        false => {
            let (head, data) = frame.split_once("data: ")?;
            let (message, tail) = data.split_once('\n')?;
            [head, "data: ", &rounds::order::in_order(message)?, "\n", tail].concat()
        }
    };
    // The length may have been announced in a header already.
    (ordered.len() == frame.len()).then_some(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"{"result":{"_meta":{"rounds/order":["b","a"]},"inputRequests":{"a":1,"b":2}}}"#;
    const ORDERED: &str = r#"{"result":{"_meta":{"rounds/order":["b","a"]},"inputRequests":{"b":2,"a":1}}}"#;

    #[test]
    fn a_message_and_the_data_of_an_event_are_put_in_order_and_the_rest_stays() {
        let event = |message: &str| format!("id: 1/data\nretry: 3000\ndata: {message}\n\n");
        assert_eq!(ordered(SAID.as_bytes()).as_deref(), Some(ORDERED));
        assert_eq!(ordered(event(SAID).as_bytes()), Some(event(ORDERED)));
        for other in ["", ":\n\n", "data: \n\n", "data: ", "event: data: x", "{}", &SAID[1..], "\u{e9}"] {
            assert_eq!(ordered(other.as_bytes()), None, "{other}");
        }
        assert_eq!(ordered(b"data: \xff\n\n"), None);
        let spaced = SAID.replace("{\"a\"", "{ \"a\"");
        assert_eq!(ordered(spaced.as_bytes()), None, "the length would change");
    }
}

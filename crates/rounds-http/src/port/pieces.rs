//! Response bodies in pieces: hyper gets a bounded part of a body at a time.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::watch::Watch;

/// How many bytes of a response hyper gets at a time, and after how many it writes. As long as a connection lasts,
/// hyper keeps a buffer as large as the largest amount in between.
pub(super) const PIECE: usize = 64 << 10;

/// A body, if there is one, in pieces of a bounded size.
///
/// It never announces that it is empty. hyper would finish an empty response as soon as its head is in the buffer. If a
/// client sent requests and read nothing, such responses would make the buffer grow without limit.
pub(super) struct Pieces<B> {
    body: Option<B>,
    /// Data that has arrived and has not been passed on yet.
    rest: Bytes,
    has_begun: bool,
    watch: Arc<Watch>,
}

impl<B> Pieces<B> {
    pub(super) fn of(body: Option<B>, watch: Arc<Watch>) -> Self {
        Self { body, rest: Bytes::new(), has_begun: false, watch }
    }

    /// A body that is known already.
    pub(super) fn whole(text: Bytes, watch: Arc<Watch>) -> Self {
        Self { body: None, rest: text, has_begun: false, watch }
    }

    fn next(&mut self) -> Frame<Bytes> {
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        Frame::data(piece)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Pieces<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.has_begun = true;
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.next())));
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let Some(frame) = std::task::ready!(Pin::new(body).poll_frame(cx)?) else { return Poll::Ready(None) };
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(data) => {
                self.rest = data;
                self.next()
            }
            Err(frame) => frame,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.has_begun && self.rest.is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let Some(body) = &self.body else { return SizeHint::with_exact(rest) };
        let mut hint = body.size_hint();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// hyper drops a body when it has taken all of it.
impl<B> Drop for Pieces<B> {
    fn drop(&mut self) {
        self.watch.responded();
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::HeaderMap;
    use http_body_util::{BodyExt, Full};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::port::watch::Unfinished;

    fn pieces<B>(body: B) -> Pieces<B> {
        Pieces::of(Some(body), Arc::new(Watch::new(Arc::new(Unfinished::up_to(0)), CancellationToken::new())))
    }

    #[tokio::test]
    async fn a_long_body_comes_in_pieces_and_says_how_long_it_is() {
        let long = Bytes::from(vec![7; 2 * PIECE + 5]);
        let mut pieces = pieces(Full::new(long.clone()));
        let mut left = long.len();
        for size in [PIECE, PIECE, 5] {
            assert_eq!(pieces.size_hint().exact(), Some(left as u64));
            assert!(!pieces.is_end_stream());
            let piece = pieces.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(piece, long[..size]);
            left -= size;
        }
        assert!(pieces.is_end_stream() && pieces.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_short_body_and_its_trailers_stay_what_they_are() {
        let trailers = async { Some(Ok::<_, Infallible>(HeaderMap::new())) };
        let body = Full::new(Bytes::from("one")).with_trailers(Box::pin(trailers));
        let mut pieces = pieces(body);
        assert_eq!(pieces.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
        assert!(pieces.frame().await.unwrap().unwrap().is_trailers());
        assert!(pieces.frame().await.is_none());
    }
}

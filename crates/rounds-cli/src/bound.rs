//! Limits on the size of a server's messages. rmcp limits events and lines, but not the body of a response, and it
//! skips a line that is too long, so its call would wait for an answer that was skipped.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::Notify,
};

/// A limit on the size of a message, and whether it was exceeded. Clones share both.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    most: usize,
    exceeded: Arc<Exceeded>,
}

#[derive(Debug, Default)]
struct Exceeded {
    is: AtomicBool,
    becomes: Notify,
}

/// A message exceeded the limit.
#[derive(Debug, thiserror::Error)]
#[error("the server sent more than {} in one message; allow more with --response-limit", size(*most))]
pub(crate) struct TooLong {
    most: usize,
}

impl Bound {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, exceeded: Arc::default() }
    }

    /// Resolves when a message has exceeded the limit. Its reader has stopped.
    pub(crate) async fn exceeded(&self) -> TooLong {
        self.exceeded.becomes.notified().await;
        TooLong { most: self.most }
    }

    /// The error, if a message has exceeded the limit.
    pub(crate) fn error(&self) -> Option<TooLong> {
        self.exceeded.is.load(Ordering::Relaxed).then_some(TooLong { most: self.most })
    }

    /// Fails if a message has more bytes than the limit.
    pub(crate) fn check(&self, bytes: u64) -> io::Result<()> {
        if usize::try_from(bytes).is_ok_and(|bytes| bytes <= self.most) {
            return Ok(());
        }
        self.exceeded.is.store(true, Ordering::Relaxed);
        self.exceeded.becomes.notify_one();
        Err(io::Error::new(io::ErrorKind::InvalidData, TooLong { most: self.most }))
    }
}

/// A stream of lines with a limit on the length of each.
pub(crate) struct Lines<R> {
    reader: R,
    bound: Bound,
    /// Length of the current line so far.
    line: u64,
}

impl<R> Lines<R> {
    pub(crate) fn new(reader: R, bound: Bound) -> Self {
        Self { reader, bound, line: 0 }
    }

    fn count(&mut self, bytes: &[u8]) -> io::Result<()> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line += line.len() as u64;
            self.bound.check(self.line)?;
            if line.ends_with(b"\n") {
                self.line = 0;
            }
        }
        Ok(())
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(cx, buf))?;
        let counted = self.count(&buf.filled()[before..]);
        if counted.is_err() {
            // A read that fails must not leave bytes behind.
            buf.set_filled(before);
        }
        Poll::Ready(counted)
    }
}

/// A stream of events with a limit on the length of each.
pub(crate) struct Events<B> {
    body: B,
    bound: Bound,
    /// Length so far of the current event and of its last line, without line ends.
    event: u64,
    line: u64,
    /// Whether the last byte was a carriage return. A line feed after it ends the same line.
    returned: bool,
}

impl<B> Events<B> {
    pub(crate) fn new(body: B, bound: Bound) -> Self {
        Self { body, bound, event: 0, line: 0, returned: false }
    }

    /// An event ends with an empty line.
    pub(crate) fn count(&mut self, bytes: &[u8]) -> io::Result<()> {
        for line in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let returned = std::mem::replace(&mut self.returned, line.last() == Some(&b'\r'));
            if returned && line == b"\n" {
                continue;
            }
            self.line += line.len() as u64;
            self.bound.check(self.event + self.line)?;
            if let Some(b'\n' | b'\r') = line.last() {
                self.event = if self.line == 1 { 0 } else { self.event + self.line };
                self.line = 0;
            }
        }
        Ok(())
    }
}

impl<B> Body for Events<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else { return Poll::Ready(None) };
        let frame = frame.map_err(io::Error::other)?;
        if let Some(data) = frame.data_ref() {
            self.count(data)?;
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

/// Parses a size: `512KiB`, `16MiB`, `1GiB` or a plain number of bytes.
pub(crate) fn parse(text: &str) -> Result<usize, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, shift)| *shift);
    let bytes = number.parse::<usize>().ok().zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "a size is a number of bytes, such as 65536, 512KiB or 16MiB".to_owned())
}

const UNITS: [(&str, u32); 4] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("", 0)];

/// A size for display, in the largest unit of which it is a whole number.
fn size(bytes: usize) -> String {
    let whole = |(_, shift): &&(&str, u32)| bytes.is_multiple_of(1 << shift) && bytes >> shift > 0;
    match UNITS.iter().find(whole) {
        Some((unit, shift)) if *shift > 0 => format!("{} {unit}", bytes >> shift),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_told() {
        for (text, bytes, told) in [
            ("16MiB", 16 << 20, "16 MiB"),
            ("512KiB", 512 << 10, "512 KiB"),
            ("1GiB", 1 << 30, "1 GiB"),
            ("1000", 1000, "1000 bytes"),
        ] {
            assert_eq!(parse(text), Ok(bytes));
            assert_eq!(size(bytes), told);
        }
        assert_eq!(size(1536), "1536 bytes");
        for text in ["", "MiB", "0", "0KiB", "16 MiB", "16MB", "-1", "1.5MiB", "99999999999999999999", "99999999999GiB"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    async fn lines(sent: &str) -> io::Result<usize> {
        // Also in pieces of one byte.
        let mut read = Vec::new();
        Lines::new(sent.as_bytes(), Bound::new(5)).read_to_end(&mut read).await?;
        let (mut lines, mut byte) = (Lines::new(sent.as_bytes(), Bound::new(5)), [0]);
        while lines.read(&mut byte).await? > 0 {}
        Ok(read.len())
    }

    #[tokio::test]
    async fn a_line_may_be_as_long_as_the_limit_and_there_may_be_any_number_of_them() {
        assert_eq!(lines("1234\n\n1234\n12345").await.unwrap(), 16);
        for long in ["12345\n", "123456", "1\n123456"] {
            let error = lines(long).await.unwrap_err();
            assert_eq!(
                error.to_string(),
                "the server sent more than 5 bytes in one message; allow more with --response-limit"
            );
        }
    }

    async fn events(sent: &'static str) -> io::Result<Bytes> {
        let whole = Events::new(Full::new(Bytes::from(sent)), Bound::new(20)).collect().await?.to_bytes();
        let mut single = Events::new(Full::new(Bytes::new()), Bound::new(20));
        sent.as_bytes().iter().try_for_each(|byte| single.count(&[*byte]))?;
        Ok(whole)
    }

    #[tokio::test]
    async fn an_event_may_be_as_long_as_the_limit_and_there_may_be_any_number_of_them() {
        for fit in
            ["data: 1234567890\n\n: ping\n\ndata: 1234567890\n\n", "data: 12345678\r\n\r\ndata: 12345678\r\n\r\n"]
        {
            assert_eq!(events(fit).await.unwrap(), fit);
        }
        for long in [
            "data: 123456789012345\n\n",
            "data: 12345\ndata: 12345\n",
            "data: 12345\r\ndata: 12345\r\n",
            ": ping\n\ndata: 123456789012345",
        ] {
            events(long).await.unwrap_err();
        }
    }

    #[tokio::test]
    async fn whoever_waits_for_it_is_told_also_afterwards() {
        let bound = Bound::new(5);
        bound.check(5).unwrap();
        bound.check(6).unwrap_err();
        assert_eq!(bound.clone().exceeded().await.most, 5);
    }
}

//! Transports that keep the order of questions and their fields: see [`order`](crate::order).

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncWrite, Stdin, Stdout};

use crate::shared::order::in_order;

/// The standard input and output of this process, like rmcp's function of the same name, with questions and their
/// fields in order.
///
/// ```no_run
/// use rmcp::{ServerHandler, ServiceExt};
/// use rounds::{Rounds, transport::stdio};
/// # struct Weather;
/// # impl ServerHandler for Weather {}
///
/// # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
/// Rounds::new(Weather).serve(stdio()).await?.waiting().await?;
/// # Ok(()) }
/// ```
pub fn stdio() -> (Stdin, InOrder<Stdout>) {
    (tokio::io::stdin(), InOrder::new(tokio::io::stdout()))
}

/// Passes lines of JSON-RPC on to another writer, with the members of questions in their declared order.
///
/// It is for the writing half of any pair that rmcp accepts: `server.serve((reader, InOrder::new(writer)))`. A line is
/// held back until it is complete.
#[derive(Debug)]
pub struct InOrder<W> {
    writer: W,
    /// A line that is not complete.
    line: Vec<u8>,
    /// A complete line to pass on, and how much of it was written.
    whole: Vec<u8>,
    written: usize,
}

impl<W: AsyncWrite + Unpin> InOrder<W> {
    /// Wraps this writer.
    pub const fn new(writer: W) -> Self {
        Self { writer, line: Vec::new(), whole: Vec::new(), written: 0 }
    }

    /// Passes on the complete line.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.whole.len() {
            let written = ready!(Pin::new(&mut self.writer).poll_write(cx, &self.whole[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        self.whole.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let ordered = str::from_utf8(&line).ok().and_then(|line| Some(in_order(line.trim_end())? + "\n"));
        self.whole = ordered.map_or(line, String::into_bytes);
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for InOrder<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        self.line.extend_from_slice(&bytes[..taken]);
        if end.is_some() {
            self.end_line();
        }
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        // A line without an end is not a message. It is passed on unchanged.
        self.whole = std::mem::take(&mut self.line);
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.writer).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    const SAID: &str = r#"{"id":1,"result":{"_meta":{"rounds/order":["b","a"]},"inputRequests":{"a":1,"b":2}}}"#;
    const ORDERED: &str = r#"{"id":1,"result":{"_meta":{"rounds/order":["b","a"]},"inputRequests":{"b":2,"a":1}}}"#;

    /// Accepts at most seven bytes at a time.
    struct Narrow(Vec<u8>);

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(7);
            self.0.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn lines_are_written_on_whole_and_in_order_however_they_come() -> io::Result<()> {
        let other = "{ \"not\" : \"touched\" }";
        let all = format!("{SAID}\n{other}\n\n\"rounds/order\":[ is not JSON\n{SAID}\nthe rest");
        let expected = format!("{ORDERED}\n{other}\n\n\"rounds/order\":[ is not JSON\n{ORDERED}\nthe rest");
        for size in [1, 3, 64, all.len()] {
            let mut writer = InOrder::new(Narrow(Vec::new()));
            for bytes in all.as_bytes().chunks(size) {
                writer.write_all(bytes).await?;
            }
            writer.flush().await?;
            assert_eq!(writer.writer.0, expected.strip_suffix("the rest").unwrap_or_default().as_bytes(), "{size}");
            writer.shutdown().await?;
            assert_eq!(String::from_utf8_lossy(&writer.writer.0), expected, "{size}");
        }
        Ok(())
    }
}

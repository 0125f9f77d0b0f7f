//! The log of a server that was started for a call. Its lines are shown on stderr, and never in the middle of a form.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use crate::terminal::clean;

/// How many bytes of a line are read before the rest counts as another line.
const LONGEST_LINE: u64 = 8 * 1024;
/// How many lines are held back; of more, the oldest are left out.
const MOST_LINES: usize = 200;

/// The lines that wait until a question has been answered.
#[derive(Debug, Default)]
pub(crate) struct ServerLog(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Number of questions that are being answered.
    questions: usize,
    lines: VecDeque<String>,
    left_out: usize,
}

impl ServerLog {
    /// Prints a line now, or holds it back.
    pub(crate) fn take(&self, line: &str, print: impl Fn(&str)) {
        let line = format!("server: {}", clean::line(line.trim_end()));
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.questions == 0 {
            return print(&line);
        }
        waiting.lines.push_back(line);
        if waiting.lines.len() > MOST_LINES {
            waiting.lines.pop_front();
            waiting.left_out += 1;
        }
    }

    /// Holds lines back until the guard is dropped.
    pub(crate) fn hold<F: Fn(&str)>(&self, print: F) -> Held<'_, F> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).questions += 1;
        Held { log: self, print }
    }
}

/// A question that is being answered. When it is dropped, the lines that were held back are printed.
pub(crate) struct Held<'a, F: Fn(&str)> {
    log: &'a ServerLog,
    print: F,
}

impl<F: Fn(&str)> Drop for Held<'_, F> {
    fn drop(&mut self) {
        let mut waiting = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.questions -= 1;
        if waiting.questions > 0 {
            return;
        }
        if std::mem::take(&mut waiting.left_out) > 0 {
            (self.print)("server: (earlier lines are left out)");
        }
        for line in waiting.lines.drain(..) {
            (self.print)(&line);
        }
    }
}

/// Reads the lines of a log until it ends.
pub(crate) async fn read(log: impl AsyncRead + Unpin, take: impl Fn(&str)) {
    let mut log = BufReader::new(log);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut log).take(LONGEST_LINE).read_until(b'\n', &mut line).await {
        take(&String::from_utf8_lossy(&line));
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn lines_wait_while_a_question_is_answered_and_the_oldest_are_left_out() {
        let (log, printed) = (ServerLog::default(), RefCell::new(Vec::new()));
        let print = |line: &str| printed.borrow_mut().push(line.to_owned());
        log.take("one\r\n", print);
        assert_eq!(printed.take(), ["server: one"]);
        let (first, second) = (log.hold(print), log.hold(print));
        for number in 0..=MOST_LINES {
            log.take(&format!("line {number}\u{1b}[2J"), print);
        }
        drop(first);
        assert!(printed.borrow().is_empty(), "another question is still being answered");
        drop(second);
        let printed = printed.take();
        assert_eq!(printed[0], "server: (earlier lines are left out)");
        assert_eq!((&*printed[1], printed.len()), (r"server: line 1\u{1b}[2J", MOST_LINES + 1));
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_cut_into_pieces() {
        let lengths = RefCell::new(Vec::new());
        let endless = tokio::io::repeat(b'x').take(2 * LONGEST_LINE + 1);
        read(endless, |line: &str| lengths.borrow_mut().push(line.len() as u64)).await;
        assert_eq!(lengths.take(), [LONGEST_LINE, LONGEST_LINE, 1]);
    }
}

//! The driver: runs a call from its first leg to its last, with a responder and with limits that suit people.

use std::{
    fmt,
    future::{pending, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::{Duration, SystemTime},
};

use super::{
    AnswerError, AskedQuestion, BoxError, Call, Done, DriveLimits, Pending, Responder, SendError, Sent, Server,
    UserAnswer, push::Thinking,
};
use crate::shared::{
    clock::{BoxFuture, Clock},
    kind::QuestionKind,
};

/// Runs a call, or continues a pending one, to its end.
///
/// Every question goes to the responder; questions that were answered before are not asked again. If the server asks
/// nothing and wants to be called again, the call is sent after 50, 100, 200 and then every 250 milliseconds. A call that
/// has become a task is polled at the server's pace. Time is measured by the [`Server`]'s clock.
///
/// ```no_run
/// use rmcp::object;
/// use rounds::client::{UserAnswer, Call, DriveLimits, AskedQuestion, Server, drive};
///
/// # async fn example(client: Server<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// let ask = async |question: AskedQuestion| -> Result<UserAnswer, std::io::Error> {
///     println!("{} asks: {}", question.origin(), question.message());
///     Ok(UserAnswer::Form(object!({"units": "metric"})))
/// };
/// let outcome = drive(client, Call::tool("weather", object!({"location": "Paris"})), &ask, DriveLimits::default()).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If a leg fails, if the responder fails or returns an answer that is not valid, or if a limit is exceeded. The error
/// contains the call with all answers so far, if there are any, so no answer is lost.
pub async fn drive<R: Responder + ?Sized>(
    server: impl Into<Server<'_>>,
    start: impl Into<Start>,
    responder: &R,
    limits: DriveLimits,
) -> Result<DriveOutcome, DriveError> {
    let server = server.into();
    let time = Time::new(server.clock.clone(), &limits);
    let mut drive = Drive { server, next: start.into(), responder, limits, time };
    if let Start::Call(call) = &mut drive.next {
        call.identify();
    }
    let ended = drive.run().await;
    ended.map_err(|stopped| DriveError { stopped: Box::new(stopped), pending: drive.next.into_pending() })
}

/// Where to start: at the first leg, or at a pending round.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Start {
    /// With the first leg.
    Call(Call),
    /// With the answers to these questions.
    Pending(Pending),
}

impl From<Call> for Start {
    fn from(call: Call) -> Self {
        Self::Call(call)
    }
}

impl From<Pending> for Start {
    fn from(pending: Pending) -> Self {
        Self::Pending(pending)
    }
}

impl Start {
    fn into_pending(self) -> Option<Box<Pending>> {
        match self {
            Self::Pending(pending) => Some(Box::new(pending)),
            Self::Call(_) => None,
        }
    }
}

/// How a driven call ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum DriveOutcome {
    /// With a result.
    Done(Done),
}

/// Progress of a driven call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A leg is being sent.
    Sending {
        /// The number of rounds so far.
        rounds: u32,
        /// The call with its answers, unless it is the first leg. If the leg is lost, they can be sent again: a server
        /// with `rounds` does not run anything twice because of it.
        pending: Option<&'a Pending>,
    },
    /// The server asks; the responder is about to be asked.
    Asked(&'a Pending),
    /// The server asks nothing, and will be called again. A task may say [how far it is](Pending::status_message).
    Later {
        /// The call.
        pending: &'a Pending,
        /// After this time.
        wait: Duration,
    },
}

/// Why a driven call did not end with an outcome, and the call as far as it got.
#[derive(Debug)]
pub struct DriveError {
    stopped: Box<Stopped>,
    pending: Option<Box<Pending>>,
}

/// Why a driven call stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// The server asked in more rounds than the limit allows.
    #[error(
        "the server has not finished after {most} rounds; continue with the pending call, or raise `DriveLimits::with_rounds`"
    )]
    Rounds {
        /// The limit of rounds.
        most: u32,
    },
    /// The server took longer than the limit allows.
    #[error(
        "the server has not finished after {most:?}, not counting the time of the answers; continue with the pending call, or raise \
         `DriveLimits::with_total`"
    )]
    Total {
        /// The limit of the server's time.
        most: Duration,
    },
    /// The whole call took longer than the limit allows.
    #[error(
        "the call has not ended after {most:?}; continue with the pending call, or raise `DriveLimits::with_longest`"
    )]
    Longest {
        /// The limit of the whole call's time.
        most: Duration,
    },
    /// A question that cannot be cancelled was not answered in time.
    #[error("{key:?} was not answered within {most:?}")]
    NoAnswer {
        /// The question's key.
        key: String,
        /// The limit of an answer's time.
        most: Duration,
    },
    /// The responder does not answer questions of this kind. A server may ask only what was declared to it.
    #[error(
        "{key:?} is a question of a kind that the responder does not answer, and that was not declared to the server"
    )]
    CannotAnswer {
        /// The question's key.
        key: String,
        /// The kind of the question.
        kind: QuestionKind,
    },
    /// The responder failed.
    #[error("{key:?} could not be answered")]
    Responder {
        /// The question's key.
        key: String,
        /// The error of the responder.
        source: BoxError,
    },
    /// The responder returned an answer that is not valid for the question.
    #[error("the answer is not valid for the question")]
    Answer(#[source] AnswerError),
    /// A leg failed.
    #[error(transparent)]
    Leg(SendError),
}

impl DriveError {
    /// Why the call stopped.
    pub fn stopped(&self) -> &Stopped {
        &self.stopped
    }

    /// The call with all answers so far, if the server has asked.
    pub fn pending(&self) -> Option<&Pending> {
        self.pending.as_deref()
    }

    /// The call with all answers so far, to continue by hand or by [`drive`] with other limits.
    pub fn into_pending(self) -> Option<Pending> {
        self.pending.map(|pending| *pending)
    }
}

impl fmt::Display for DriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stopped.fmt(f)
    }
}

impl std::error::Error for DriveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.stopped)
    }
}

struct Drive<'a, R: ?Sized> {
    server: Server<'a>,
    responder: &'a R,
    limits: DriveLimits,
    time: Time,
    /// The next leg. Answers are added when they arrive, so that they are kept whatever stops the call.
    next: Start,
}

impl<R: Responder + ?Sized> Drive<'_, R> {
    async fn run(&mut self) -> Result<DriveOutcome, Stopped> {
        let mut waits = 0;
        loop {
            self.ask().await?;
            let pending = match self.leg().await? {
                Sent::Done(done) => return Ok(DriveOutcome::Done(done)),
                Sent::Asks(pending) | Sent::Later(pending) => pending,
            };
            let (later, poll) = (pending.questions().is_empty(), pending.poll_after());
            let within = pending.round() <= self.limits.rounds;
            self.next = pending.into();
            if !within {
                return Err(Stopped::Rounds { most: self.limits.rounds });
            }
            if later {
                self.wait(poll.unwrap_or_else(|| pause(waits))).await?;
                waits += 1;
            } else {
                waits = 0;
            }
        }
    }

    async fn leg(&mut self) -> Result<Sent, Stopped> {
        let Self { server, responder, time, next, .. } = self;
        // A leg that is sent and then cancelled may end its flow, and its answers would be lost.
        time.is_left()?;
        let pending = if let Start::Pending(pending) = &*next { Some(pending) } else { None };
        responder.progress(&Progress::Sending { rounds: pending.map_or(0, Pending::round), pending });
        let sent = pin!(async {
            match next {
                Start::Call(call) => call.send_to(server).await,
                Start::Pending(pending) => pending.send_to(server).await,
            }
        });
        time.of_server(server.thinking.clone(), sent).await?.map_err(Stopped::Leg)
    }

    async fn wait(&mut self, wait: Duration) -> Result<(), Stopped> {
        if let Start::Pending(pending) = &self.next {
            self.responder.progress(&Progress::Later { pending, wait });
        }
        let mut sleep = self.server.clock.sleep(wait);
        self.time.of_server(None, sleep.as_mut()).await
    }

    /// Has all open questions answered. The time of the server does not count meanwhile.
    async fn ask(&mut self) -> Result<(), Stopped> {
        let Self { server, responder, limits, time, next } = self;
        let Start::Pending(pending) = next else { return Ok(()) };
        let open = |question: &&AskedQuestion| pending.answered(question.key()).is_none();
        let open: Vec<AskedQuestion> = pending.questions().iter().filter(open).cloned().collect();
        if open.is_empty() {
            return Ok(());
        }
        if let Some(question) = open.iter().find(|question| !responder.can(question.kind())) {
            return Err(Stopped::CannotAnswer { key: question.key().to_owned(), kind: question.kind() });
        }
        responder.progress(&Progress::Asked(pending));
        let answer = |question| answer(*responder, question, limits.question, &*server.clock);
        let asked = pin!(async {
            if responder.is_concurrent() {
                let asked =
                    |question: AskedQuestion| (question.clone(), Box::pin(answer(question)) as BoxFuture<'_, _>);
                return together(pending, open.into_iter().map(asked).collect()).await;
            }
            for question in open {
                let answer = answer(question.clone()).await?;
                pending.answer(question.key(), answer).map_err(Stopped::Answer)?;
            }
            Ok(())
        });
        time.of_people(asked).await?
    }
}

/// How long to wait before a call without questions is sent again, after so many of them in a row.
fn pause(waits: u32) -> Duration {
    Duration::from_millis((50 << waits.min(3)).min(250))
}

/// The answer to one question. A timeout is a cancel, because the user has not declined.
async fn answer<R: Responder + ?Sized>(
    responder: &R,
    question: AskedQuestion,
    most: Duration,
    clock: &dyn Clock,
) -> Result<UserAnswer, Stopped> {
    let (asked, kind) = (question.clone(), question.kind());
    let key = || asked.key().to_owned();
    tokio::select! {
        biased;
        answer = responder.answer(question) => answer.map_err(|source| Stopped::Responder { key: key(), source }),
        () = async { clock.sleep(most).await } => match kind {
            QuestionKind::Form | QuestionKind::Url | QuestionKind::Elsewhere => Ok(UserAnswer::Cancel),
            QuestionKind::Sample | QuestionKind::Roots => Err(Stopped::NoAnswer { key: key(), most }),
        },
    }
}

/// Waits for all answers at once, up to the first failure. The answers until then are kept.
async fn together(
    pending: &mut Pending,
    mut asked: Vec<(AskedQuestion, BoxFuture<'_, Result<UserAnswer, Stopped>>)>,
) -> Result<(), Stopped> {
    poll_fn(|context| {
        let mut at = 0;
        while let Some((question, answer)) = asked.get_mut(at) {
            match answer.as_mut().poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready(answer) => {
                    let kept = |answer| pending.answer(question.key(), answer).map_err(Stopped::Answer);
                    let kept = answer.and_then(kept);
                    if kept.is_err() {
                        return Poll::Ready(kept);
                    }
                    drop(asked.remove(at));
                }
            }
        }
        if asked.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// The time that a call has taken, and may still take.
///
/// Awaited futures are pinned in place: a future that is passed by value would be stored twice, and a leg is large.
struct Time {
    alarm: Alarm,
    began: SystemTime,
    longest: Duration,
    total: Duration,
    /// How long the server may still take.
    left: Duration,
}

impl Time {
    fn new(clock: Arc<dyn Clock>, limits: &DriveLimits) -> Self {
        let (longest, total) = (limits.longest, limits.total);
        Self { began: clock.now(), alarm: Alarm { clock, set: None }, longest, total, left: total }
    }

    /// Waits for this future while the server has time left. While a pushed question is being answered, the server's
    /// time does not count.
    async fn of_server<T>(
        &mut self,
        mut thinking: Option<Thinking>,
        mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Result<T, Stopped> {
        loop {
            let still = thinking.as_mut().is_some_and(|thinking| *thinking.borrow_and_update() > 0);
            let began = self.alarm.clock.now();
            let whole = self.whole(began);
            let (most, stopped) = if still || whole < self.left {
                (whole, Stopped::Longest { most: self.longest })
            } else {
                (self.left, Stopped::Total { most: self.total })
            };
            let ready = tokio::select! {
                biased;
                ready = &mut future => Some(Ok(ready)),
                () = changed(&mut thinking) => None,
                () = self.alarm.ring(began, most) => Some(Err(stopped)),
            };
            if !still {
                self.left = self.left.saturating_sub(since(began, self.alarm.clock.now()));
            }
            if let Some(ready) = ready {
                return ready;
            }
        }
    }

    /// Waits for this future while the whole call has time left. The server's time does not count.
    async fn of_people<T>(&mut self, future: Pin<&mut impl Future<Output = T>>) -> Result<T, Stopped> {
        let began = self.alarm.clock.now();
        let whole = self.whole(began);
        tokio::select! {
            biased;
            ready = future => Ok(ready),
            () = self.alarm.ring(began, whole) => Err(Stopped::Longest { most: self.longest }),
        }
    }

    /// Whether time is left. The clock may have been set, or have advanced while the machine was suspended and timers
    /// were not.
    fn is_left(&self) -> Result<(), Stopped> {
        if self.whole(self.alarm.clock.now()).is_zero() {
            return Err(Stopped::Longest { most: self.longest });
        }
        if self.left.is_zero() {
            return Err(Stopped::Total { most: self.total });
        }
        Ok(())
    }

    /// How long the whole call may still take.
    fn whole(&self, now: SystemTime) -> Duration {
        self.longest.saturating_sub(since(self.began, now))
    }
}

/// One timer for every limit in turn. Creating a timer is expensive, and most calls end long before it fires.
struct Alarm {
    clock: Arc<dyn Clock>,
    /// When the timer fires, and the timer.
    set: Option<(SystemTime, BoxFuture<'static, ()>)>,
}

impl Alarm {
    /// Resolves when this much time has passed since `now`. A timer that fires earlier is kept, and a new one is
    /// created once it has fired.
    async fn ring(&mut self, mut now: SystemTime, after: Duration) {
        let Some(due) = now.checked_add(after) else { return self.clock.sleep(after).await };
        while now < due {
            self.set.take_if(|(at, _)| *at > due);
            let (at, timer) = self.set.get_or_insert_with(|| (due, self.clock.sleep(since(now, due))));
            timer.await;
            // Even if the clock was set back, it is not earlier than when the timer fired.
            now = self.clock.now().max(*at);
            self.set = None;
        }
    }
}

/// Resolves when the number of pending pushed questions changes; never, if the connection has no host.
async fn changed(thinking: &mut Option<Thinking>) {
    if let Some(thinkers) = thinking
        && thinkers.changed().await.is_ok()
    {
        return;
    }
    *thinking = None;
    pending::<()>().await;
}

fn since(began: SystemTime, now: SystemTime) -> Duration {
    // A clock that was set back counts as no time.
    now.duration_since(began).unwrap_or_default()
}

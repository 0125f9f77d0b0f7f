//! Questions whose answer does not come through the client: an approval by another person, a form for them, a page of
//! the author's own.
//!
//! Such a question is one more kind on the seam of the engine: it is asked, sealed and recorded like every other one. This
//! folder stands between the client and the legs. A retry is let through to the engine only once there is a decision, which
//! takes the place of whatever the client sent; until then the client gets the same state back, and nothing is claimed.
//! The decision is a document in the ledger, written once.

mod kept;
mod notify;
mod play;
mod wait;
mod webhook;
mod work;

pub(crate) use self::{
    kept::{RESULT_TOOL, result_tool},
    play::{ElsewherePlayer, awaited},
};
pub use self::{
    notify::{Notice, Notify, NotifyError},
    webhook::{WebhookError, WebhookKey, WebhookKeyError, WebhookSignature},
};

use std::{fmt, sync::Arc, time::Duration};

use self::{notify::Notifying, work::Places};
use super::{
    flows::{Approve, Deciders, Flows, Roles},
    policy::elsewhere::AskingElsewhere,
    seal::envelope::Envelope,
};

/// The settings for questions that are answered elsewhere. Set them with
/// [`RoundsBuilder::elsewhere`](crate::RoundsBuilder::elsewhere).
///
/// ```
/// use rmcp::ServerHandler;
/// use rounds::{Principal, Rounds, elsewhere::Elsewhere};
///
/// struct Shop;
/// impl ServerHandler for Shop {}
///
/// let elsewhere = Elsewhere::at("https://shop.example/desk/questions")
///     .roles(|who: &Principal| if who.as_str() == "grace" { vec!["manager".to_owned()] } else { vec![] })
///     .result_tool();
/// let server = Rounds::builder(Shop).register().elsewhere(elsewhere).build()?;
/// # Ok::<(), rounds::BuildError>(())
/// ```
#[must_use]
pub struct Elsewhere {
    page: Option<String>,
    hold: Duration,
    pub(crate) rounds: u32,
    has_result_tool: bool,
    deciders: Deciders,
    notify: Option<Box<dyn Notify>>,
    notifies_text: bool,
}

impl Elsewhere {
    /// How long a retry waits for a decision by default: 25 seconds.
    pub const HOLD: Duration = Duration::from_secs(25);

    /// How many rounds a client is taken to allow by default: 10.
    pub const ROUNDS: u32 = 10;

    /// No page shows the questions: every caller that does not use tasks is told a reference.
    pub fn new() -> Self {
        Self {
            page: None,
            hold: Self::HOLD,
            rounds: Self::ROUNDS,
            has_result_tool: false,
            deciders: Deciders::default(),
            notify: None,
            notifies_text: false,
        }
    }

    /// The questions are shown under this address, such as that of a desk: the question `key` of the flow `id` at
    /// `address/id/key`. The page has to authenticate its visitors. The address by itself grants nothing.
    pub fn at(address: impl Into<String>) -> Self {
        Self { page: Some(address.into()), ..Self::new() }
    }

    /// Sets how long a retry waits for a decision before its client gets the same question back: 25 seconds by default.
    /// Keep it shorter than the timeout of the clients and of every proxy.
    pub fn hold(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    /// Sets how many rounds a client allows: 10 by default. The call ends with a tool error that carries a reference
    /// one round before.
    pub fn rounds(self, rounds: u32) -> Self {
        Self { rounds, ..self }
    }

    /// Adds the tool `flow_result {reference}`, with which a model fetches the outcome of a call that it no longer waits
    /// for. It is bound to the principal of the call. The server must not have a tool of this name.
    pub fn result_tool(self) -> Self {
        Self { has_result_tool: true, ..self }
    }

    /// Adds a rule of the server's own, for [`Approvers::rule`](crate::elsewhere::Approvers::rule).
    pub fn rule(mut self, name: impl Into<String>, rule: impl Approve) -> Self {
        self.deciders.rules.insert(name.into(), Box::new(rule));
        self
    }

    /// Sets which roles a principal has, for [`Approvers::role`](crate::elsewhere::Approvers::role). By default none has any.
    pub fn roles(mut self, roles: impl Roles) -> Self {
        self.deciders.roles = Some(Box::new(roles));
        self
    }

    /// Tells people of each question, such as with the webhook of `rounds-http`. What a notification says is a
    /// [`Notice`]: not the text of the question, and not the arguments of the call.
    pub fn notify(self, notify: impl Notify) -> Self {
        Self { notify: Some(Box::new(notify)), ..self }
    }

    /// Puts the text of the question into each notification too, cut to 2000 bytes. Do this only if everyone who gets
    /// notifications may read it: the text often has a name or an amount of the call.
    pub fn notify_with_text(self) -> Self {
        Self { notifies_text: true, ..self }
    }
}

/// The settings as a server has them.
pub(crate) struct ElsewhereService {
    pub(crate) hold: Duration,
    pub(crate) rounds: u32,
    pub(crate) has_result_tool: bool,
    pub(crate) deciders: Arc<Deciders>,
    notifying: Option<Notifying>,
    places: Places,
}

impl ElsewhereService {
    /// Prepares the notifications of the questions that this round asks, if people are notified.
    async fn announce(&self, flows: &Flows, envelope: &Envelope) {
        if self.notifying.is_none() {
            return;
        }
        if let Err(error) = flows.prepare_notices(envelope.flow.in_ledger()).await {
            tracing::warn!(target: "rounds", %error, "people are not notified of a question");
        }
    }
}

impl Elsewhere {
    pub(crate) fn service(self) -> ElsewhereService {
        let Self { hold, rounds, has_result_tool, deciders, notify, notifies_text, .. } = self;
        ElsewhereService {
            hold,
            rounds,
            has_result_tool,
            deciders: Arc::new(deciders),
            notifying: notify.map(|notify| Notifying { notify, has_text: notifies_text }),
            places: Places::default(),
        }
    }

    /// What the engine has to know of it.
    pub(crate) fn asking(&self) -> AskingElsewhere {
        AskingElsewhere { page: self.page.clone(), ..AskingElsewhere::default() }
    }
}

impl Default for Elsewhere {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elsewhere").field("page", &self.page).field("hold", &self.hold).finish_non_exhaustive()
    }
}

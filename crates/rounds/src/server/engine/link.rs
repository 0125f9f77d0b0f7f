//! The leg in flight, as far as a handler that outlives it may reach it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use rmcp::{
    Peer, RoleServer, ServiceError,
    model::{
        Extensions, ProgressNotification, ProgressNotificationParam, ProgressToken, RequestMetaObject,
        ServerNotification,
    },
    service::RequestContext,
};

use crate::server::policy::observe::cut;

/// By how much a sign of life goes on from what was said last: so little that a handler that counts in ones is not overtaken.
const STEP: f64 = 0.001;

/// The way to the client of the leg in flight.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) peer: Peer<RoleServer>,
    /// What the client was told of how far its call has come, if it wants to know.
    told: Option<Arc<Told>>,
    /// Where its progress is shown, if the call is or may become a task.
    status: Option<StatusLine>,
}

/// The latest progress of a call that is or may become a task. It travels in the request's extensions.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatusLine(Arc<Status>);

#[derive(Debug, Default)]
struct Status {
    text: Mutex<Option<String>>,
    /// Whether the call is a task, so that its client gets no notifications.
    is_of_task: AtomicBool,
    /// Whether the leg got the reply of an equal one, or may have got it.
    is_replayed: AtomicBool,
}

impl StatusLine {
    /// The call is a task from here on.
    pub(crate) fn is_of_task(&self) {
        self.0.is_of_task.store(true, Ordering::Relaxed);
    }

    /// The leg gets the reply of an equal one, or may get it.
    pub(super) fn note_replay(&self) {
        self.0.is_replayed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.0.is_replayed.load(Ordering::Relaxed)
    }

    /// The text, if there is one.
    pub(crate) fn get(&self) -> Option<String> {
        self.0.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows this text, and returns whether the client gets no notification of it.
    pub(crate) fn show(&self, text: Option<&str>) -> bool {
        if let Some(text) = text {
            *self.0.text.lock().unwrap_or_else(PoisonError::into_inner) = Some(cut(text).into_owned());
        }
        self.0.is_of_task.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Told {
    token: ProgressToken,
    /// How far, and of how much. It may not be less the next time.
    last: Mutex<(f64, Option<f64>)>,
}

impl Link {
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Self {
        Self::new(context.peer.clone(), &context.meta, &context.extensions)
    }

    pub(crate) fn new(peer: Peer<RoleServer>, meta: &RequestMetaObject, extensions: &Extensions) -> Self {
        let told = meta.get_progress_token().map(|token| Arc::new(Told { token, last: Mutex::default() }));
        Self { peer, told, status: extensions.get::<StatusLine>().cloned() }
    }

    /// Tells the client of the leg in flight how far its call has come, if it gave a token for that.
    pub(crate) async fn progress(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        self.tell(message, |last| *last = (progress, total)).await;
    }

    /// Tells it that the call is still under way.
    pub(crate) async fn sign_of_life(&self, message: &str) {
        self.tell(Some(message.to_owned()), |(progress, _)| *progress += STEP).await;
    }

    /// Passes on a notification of the handler's own. Progress under the token that the handler was `given` is told under the token of
    /// the leg in flight, if that leg has one.
    pub(crate) async fn notify(
        &self,
        mut notification: ServerNotification,
        given: Option<&ProgressToken>,
    ) -> Result<(), ServiceError> {
        let progress = match &notification {
            ServerNotification::ProgressNotification(progress) => progress.params.message.as_deref(),
            _ => None,
        };
        if self.status.as_ref().is_some_and(|status| status.show(progress)) {
            return Ok(());
        }
        if let ServerNotification::ProgressNotification(ProgressNotification { params, .. }) = &mut notification
            && given == Some(&params.progress_token)
        {
            let Some(told) = &self.told else { return Ok(()) };
            params.progress_token = told.token.clone();
            *told.last.lock().unwrap_or_else(PoisonError::into_inner) = (params.progress, params.total);
        }
        self.peer.send_notification(notification).await
    }

    async fn tell(&self, message: Option<String>, goes_on: impl FnOnce(&mut (f64, Option<f64>))) {
        if self.status.as_ref().is_some_and(|status| status.show(message.as_deref())) {
            return;
        }
        let Some(told) = &self.told else { return };
        let (progress, total) = {
            let mut last = told.last.lock().unwrap_or_else(PoisonError::into_inner);
            goes_on(&mut last);
            *last
        };
        let mut params = ProgressNotificationParam::new(told.token.clone(), progress);
        params.total = total;
        params.message = message;
        // A client that is gone need not be told.
        let _ = self.peer.notify_progress(params).await;
    }
}

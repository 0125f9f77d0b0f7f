//! The leg in flight, as far as a handler that outlives it may reach it.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::{
    Peer, RoleServer, ServiceError,
    model::{
        Extensions, ProgressNotification, ProgressNotificationParam, ProgressToken, RequestMetaObject,
        ServerNotification,
    },
    service::RequestContext,
};

use super::task::TaskLeg;

/// By how much a sign of life goes on from what was said last: so little that a handler that counts in ones is not overtaken.
const STEP: f64 = 0.001;

/// The way to the client of the leg in flight.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) peer: Peer<RoleServer>,
    /// What the client was told of how far its call has come, if it wants to know.
    told: Option<Arc<Told>>,
    /// Where its progress is shown, if the call is or may become a task.
    task: Option<TaskLeg>,
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
        Self { peer, told, task: extensions.get::<TaskLeg>().cloned() }
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
        if self.task.as_ref().is_some_and(|task| task.show(progress)) {
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
        if self.task.as_ref().is_some_and(|task| task.show(message.as_deref())) {
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

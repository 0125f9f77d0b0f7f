//! What can go wrong with a request, and what the visitor reads then.

use http::StatusCode;
use rounds::{
    elsewhere::DecideError,
    register::{FlowsError, NoJournal},
};

/// Why a request gets no page, or an action was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("There is no such page. A flow is shown for a day after it has ended.")]
    NotFound,
    #[error("This path does not accept this method.")]
    Method,
    #[error("The desk of this server is only for its own machine. Open it under a loopback name, such as localhost.")]
    NotLoopback,
    #[error("You may not see this desk. Sign in as a principal that may read it.")]
    MayNotRead,
    #[error("You may read here, and you may not act. Nothing was done.")]
    MayNotAct,
    #[error(
        "This form is too old, or does not come from this desk. Nothing was done: go back, reload the page and try again."
    )]
    Forged,
    #[error("This stream is for pages of this desk.")]
    Foreign,
    #[error("What was sent is not a form.")]
    NotAForm,
    #[error("What was sent is too large for a form.")]
    TooLarge,
    #[error("Too many pages are open. This one does not update by itself.")]
    TooManyStreams,
    #[error("The server could not list its tools: {0}")]
    Tools(String),
    #[error("This call was dropped to make space for newer ones, or never existed. Call the tool again.")]
    CallGone,
    #[error("This call still waits for the response to its last leg. Nothing was sent.")]
    CallRuns,
    #[error("The question has changed since this page was loaded. Nothing was sent: reload the page.")]
    QuestionChanged,
    #[error("A call can have {0} legs here. Begin another one.")]
    TooManyLegs(usize),
    #[error("Nothing was recorded: {0}.")]
    Decide(#[from] DecideError),
    #[error("There is no journal to download: {0}.")]
    Journal(#[from] NoJournal),
    #[error(transparent)]
    Flows(#[from] FlowsError),
}

impl Problem {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NotFound | Self::CallGone | Self::Journal(_) => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotLoopback | Self::MayNotRead | Self::MayNotAct | Self::Forged | Self::Foreign => {
                StatusCode::FORBIDDEN
            }
            Self::NotAForm => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::CallRuns | Self::QuestionChanged | Self::TooManyLegs(_) => StatusCode::CONFLICT,
            Self::TooManyStreams => StatusCode::SERVICE_UNAVAILABLE,
            Self::Decide(DecideError::NotFound) => StatusCode::NOT_FOUND,
            Self::Decide(DecideError::NotAllowed { .. }) => StatusCode::FORBIDDEN,
            Self::Decide(DecideError::Flows(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Decide(_) => StatusCode::CONFLICT,
            Self::Tools(_) => StatusCode::BAD_GATEWAY,
            Self::Flows(FlowsError::Ledger(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Flows(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

//! Names on the wire that both halves know.

/// The `_meta` member that says how many milliseconds a question is good for: of a result for its whole round, of a question for itself.
pub(crate) const EXPIRES_IN: &str = "rounds/expiresInMs";

/// The `_meta` member of a question whose answer does not come through the client.
pub(crate) const ELSEWHERE: &str = "rounds/elsewhere";

/// The `_meta` member with which a client gives its call an identity, so that a repeated first leg is the same call.
pub(crate) const IDEMPOTENCY_KEY: &str = "rounds/idempotencyKey";

/// The `reason` in the data of the frozen error.
pub(crate) const INVALID_REQUEST_STATE: &str = "invalid_request_state";

//! Readable reasons for a failed connection: rmcp's own messages contain the names of its types.

use std::error::Error;

use rmcp::{
    service::{ClientInitializeError, ServiceError},
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};

use crate::terminal::clean;

/// Maximum length of a quoted message.
const LONGEST: usize = 300;

/// Reason why the connection could not be opened.
pub(crate) fn not_connected(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => transport(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => not_connected(fallback),
        ClientInitializeError::JsonRpcError(error) => {
            format!("the server answered with error {}: {}", error.code.0, clean::short(&error.message, LONGEST))
        }
        other => clean::short(&other.to_string(), LONGEST),
    }
}

/// Reason why the connection was lost.
pub(crate) fn lost(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => transport(error),
        other => clean::short(&other.to_string(), LONGEST),
    }
}

fn transport(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref() {
        Some(StreamableHttpError::<reqwest::Error>::Client(error)) => innermost(error),
        Some(StreamableHttpError::AuthRequired(_)) => {
            "the server requires authentication: pass a token with --bearer".to_owned()
        }
        Some(StreamableHttpError::InsufficientScope(_)) => {
            "the token does not permit this: use one with a larger scope".to_owned()
        }
        _ => clean::short(&error.error.to_string(), LONGEST),
    }
}

/// The message of the root cause.
fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    clean::short(&innermost.to_string(), LONGEST)
}

//! Why a connection failed, in words for whoever asked for it: rmcp's own have the names of its types in them.

use std::error::Error;

use rmcp::{
    service::{ClientInitializeError, ServiceError},
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};

use crate::terminal::clean;

/// How much of somebody else's words is repeated.
const LONGEST: usize = 300;

/// Why there is no connection.
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

/// Why a connection is no more.
pub(crate) fn lost(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => transport(error),
        other => clean::short(&other.to_string(), LONGEST),
    }
}

fn transport(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref() {
        Some(StreamableHttpError::<reqwest::Error>::Client(error)) => innermost(error),
        Some(StreamableHttpError::AuthRequired(_)) => "the server wants to know who you are: --bearer TOKEN".to_owned(),
        Some(StreamableHttpError::InsufficientScope(_)) => "the token does not allow this".to_owned(),
        _ => clean::short(&error.error.to_string(), LONGEST),
    }
}

/// What it all began with.
fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    clean::short(&innermost.to_string(), LONGEST)
}

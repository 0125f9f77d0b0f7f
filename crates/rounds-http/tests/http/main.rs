//! The endpoint against rmcp's own service: what is equal, and what is not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[cfg(target_os = "linux")]
mod axum_guide;
#[cfg(feature = "port")]
mod crowd;
mod desk;
mod differential;
mod flows;
mod handlers;
mod http2;
mod identity;
mod lanes;
mod left;
#[cfg(all(feature = "metrics", feature = "port"))]
mod metrics;
mod notifications;
mod order;
mod origins;
#[cfg(feature = "port")]
mod port;
mod probes;
mod send;
#[cfg(feature = "webhook")]
mod webhook;

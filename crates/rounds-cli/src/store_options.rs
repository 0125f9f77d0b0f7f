//! How a store is used: timeouts, certificates and limits.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::duration;

/// The builders of the ledgers document each option. Every option is also an environment variable.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Store, with --store or --data")]
pub(crate) struct StoreOptions {
    /// Timeout of one call to the store [default: 1s, or 2s for SQLite]
    #[arg(long, value_name = "DURATION", env = "ROUNDS_STORE_TIMEOUT", value_parser = duration::parse, hide_short_help = true)]
    pub(crate) store_timeout: Option<Duration>,
    /// Timeout of connecting to Redis [default: 5s]
    #[arg(long, value_name = "DURATION", env = "ROUNDS_STORE_CONNECT_TIMEOUT", value_parser = duration::parse, hide_short_help = true)]
    pub(crate) store_connect_timeout: Option<Duration>,
    /// How long a start waits for a store that is away; 0s: it fails at once [default: until the store is there]
    #[arg(long, value_name = "DURATION", env = "ROUNDS_STORE_WAIT", value_parser = duration::parse, hide_short_help = true)]
    pub(crate) store_wait: Option<Duration>,
    /// Trust the certificates of this PEM file for rediss:// [default: those that the system trusts]
    #[arg(long, value_name = "FILE", env = "ROUNDS_STORE_CA", hide_short_help = true)]
    pub(crate) store_ca: Option<PathBuf>,
    /// Show the certificate of this PEM file to Redis
    #[arg(long, value_name = "FILE", env = "ROUNDS_STORE_CERT", requires = "store_key", hide_short_help = true)]
    pub(crate) store_cert: Option<PathBuf>,
    /// The key of that certificate, a PEM file
    #[arg(long, value_name = "FILE", env = "ROUNDS_STORE_KEY", requires = "store_cert", hide_short_help = true)]
    pub(crate) store_key: Option<PathBuf>,
    /// Bytes in the store of callers without a principal [default: half of maxmemory or of a gibibyte]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_STORE_ANONYMOUS_BYTES", hide_short_help = true)]
    pub(crate) store_anonymous_bytes: Option<usize>,
    /// Bytes in the store of one principal [default: a tenth of maxmemory or of a gibibyte]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_STORE_PRINCIPAL_BYTES", hide_short_help = true)]
    pub(crate) store_principal_bytes: Option<usize>,
    /// Bytes of claims that wait to be freed while the store is away [default: 33554432]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_STORE_FREEING_BYTES", hide_short_help = true)]
    pub(crate) store_freeing_bytes: Option<usize>,
}

/// Applies a setting of a builder, if it was set.
#[cfg(any(feature = "redis", feature = "sql"))]
pub(crate) fn set<B, T>(builder: B, to: Option<T>, apply: impl FnOnce(B, T) -> B) -> B {
    match to {
        Some(to) => apply(builder, to),
        None => builder,
    }
}

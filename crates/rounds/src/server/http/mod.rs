//! Streamable HTTP: the sessions of legacy clients, and the origins that are served.

pub(crate) mod sessions;

use std::net::Ipv6Addr;

use ::http::uri::Authority;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;

pub use self::sessions::{SessionTransport, Sessions};

/// Allows the origins of the allowed hosts. rmcp checks only the list of origins, and allows every origin if the list
/// is empty.
pub(super) fn with_own_origins(mut config: StreamableHttpServerConfig) -> StreamableHttpServerConfig {
    for host in &config.allowed_hosts {
        let host = host.trim();
        let is_ipv6 = host.parse::<Ipv6Addr>().is_ok();
        let host = if is_ipv6 { format!("[{host}]") } else { host.to_owned() };
        let port = match host.parse::<Authority>().map(|authority| authority.port_u16()) {
            Ok(Some(_)) => "",
            Ok(None) => ":*",
            // A request cannot have such a host.
            Err(_) => continue,
        };
        config.allowed_origins.extend(["http", "https"].map(|scheme| format!("{scheme}://{host}{port}")));
    }
    config.enforce_origin_validation()
}
